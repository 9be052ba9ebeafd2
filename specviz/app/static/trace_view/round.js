/**
 * One step of one round: the undecided draft tokens as chips after the text, and the step as a sentence. Shows only what the trace
 * recorded: q alone for a draft token that was never examined, and nothing for the K-th of these.
 */

import { chip, count, draftLength, isExamined, percent, percents } from "../shared/dom.js";

/** The draft token that a token's coin was about. */
const examinedOf = (token) => (token.draft && typeof token.draft === "object" ? token.draft : token);

/** Whether a step ends the examination of its round: draft tokens after `offset` stay unexamined. */
function isClosing(step, round) {
  const rejected = step.phase === "reject" || step.phase === "resample";
  return rejected || (["accept", "keep", "write"].includes(step.phase) && step.offset === round.tokens.length - 1);
}

/** The chip of a draft token that is not in the text by this step, with what is known of it. */
function draftChip(offset, step, round) {
  const [token, proposal] = [round.tokens[offset], round.proposals[offset]];
  const known = step.phase !== "propose" && token && isExamined(token);
  const rejected = step.phase === "reject" && offset === step.offset;
  const unseen = isClosing(step, round) && offset > step.offset;
  const node = chip(proposal ?? { label: "…" }, rejected ? "out" : unseen ? "unseen" : known ? "scored" : "");
  node.dataset.testid = "pending";
  node.title = unseen ? "not examined" : known ? "chance " + percent(token.acceptance) : proposal ? "the drafter gave it " + percent(proposal.q) : "recorded only if examined";
  return node;
}

/** The chips of the draft tokens that are not in the text by this step. */
export function pendingChips(step, round) {
  if (step.phase === "resample" || step.phase === "write") return [];
  const decided = step.phase === "reject" ? step.offset : ["accept", "keep"].includes(step.phase) ? step.offset + 1 : 0;
  return Array.from({ length: Math.max(0, draftLength(round) - decided) }, (_, at) => draftChip(decided + at, step, round));
}

/** What happens in a step, in words; a list of strings and nodes. */
export function narrate(step, round, run) {
  const drafted = draftLength(round);
  const token = round.tokens[step.offset];
  const left = isClosing(step, round) ? Math.max(0, drafted - step.offset - 1) : 0;
  const tail = left > 0 ? "the " + (left === 1 ? "one" : left) + " after it " + (left === 1 ? "is" : "are") + " not examined." : "";
  if (step.phase === "propose") return ["The drafter proposes " + count(drafted, "token") + "."];
  if (step.phase === "verify") return ["The verifier scores " + (drafted > 1 ? "all " + drafted : "it") + " in one call."];
  if (step.phase === "keep") return ["Every draft token is kept: nobody examines the drafter."];
  if (step.phase === "write") return ["The verifier writes ", chip(token, "own"), " itself: one call, one token."];
  if (step.phase === "resample") return ["In its place ", chip(token, "own"), " is drawn."];
  const passed = step.phase === "accept";
  const named = chip(examinedOf(token), passed ? "kept" : "out");
  const verdict = (passed ? " is accepted" : " is rejected") + (tail ? "; " + tail : ".");
  if (run.temperature === 0) return [named, verdict];
  const [coin, acceptance] = percents(token.coin, token.acceptance);
  return ["Coin " + coin + (passed ? ", within " : ", beyond ") + acceptance + ": ", named, verdict];
}
