/**
 * The stage of a replay: one step of one round as cards, one a proposal, and a sentence. Shows only what the trace
 * recorded; of a proposal that was never examined that is q alone.
 */

import { compared, count, draftLength, draftedFirst, el, isExamined, list, nameOf, number, quoted } from "../shared/dom.js";
import { gauge } from "./inspector.js";

const STATE_WORDS = { proposed: "proposed", scored: "scored", accepted: "✓ accepted", rejected: "✗ rejected",
  unseen: "never examined", kept: "✓ kept unexamined", drawn: "drawn instead", written: "written" };

/** The proposal that a token's coin was about. */
const examinedOf = (token) => (token.draft && typeof token.draft === "object" ? token.draft : token);

/** Whether a step ends the examination of its round: proposals after `offset` stay unexamined. */
function isClosing(step, round) {
  const rejected = step.phase === "reject" || step.phase === "resample";
  return rejected || (["accept", "keep", "write"].includes(step.phase) && step.offset === round.tokens.length - 1);
}

/** The state of the proposal at `offset` by this step. */
function stateOf(offset, step, round) {
  const token = round.tokens[offset];
  if (step.phase === "propose") return "proposed";
  if (step.phase === "verify" || offset > step.offset || (step.phase === "extend" && offset === step.offset)) {
    if (isClosing(step, round)) return "unseen";
    return token && isExamined(token) ? "scored" : "proposed";
  }
  if (isExamined(token)) return token.accepted ? "accepted" : "rejected";
  return token.accepted ? "kept" : "written";
}

/** A card: a name, its numbers, its state. */
function card(state, named, figures, coin) {
  const rows = figures.filter(Boolean).map(([name, value, odd]) =>
    el("div", "", el("dt", "", name), el("dd", odd ? "sv-unknown" : "", value)));
  const node = el("li", "sv-card " + state, el(state === "rejected" ? "del" : "span", "sv-card-name", el("bdi", "", nameOf(named))),
    el("dl", "", ...rows), coin, el("p", "sv-card-state", STATE_WORDS[state]));
  node.dataset.state = state;
  node.dataset.testid = "card";
  return node;
}

function proposalCard(offset, step, round) {
  const token = round.tokens[offset];
  const proposal = round.proposals[offset];
  const state = stateOf(offset, step, round);
  const known = state !== "proposed" && state !== "unseen" && state !== "kept" && isExamined(token);
  const scored = step.phase !== "propose" && step.phase !== "keep";
  const fallen = state === "accepted" || state === "rejected";
  return card(state, proposal, [
    ["q", number(proposal?.q)],
    scored && (known ? ["p", number(examinedOf(token).p)] : ["p", "not recorded", true]),
    known && ["acceptance", number(token.acceptance)],
  ], fallen && gauge(token));
}

/** How many proposals there are by this step. */
function draftedBy(step, round) {
  const first = draftedFirst(round);
  return step.offset < first ? first : list(round.proposals).length;
}

/** The cards of a step, from left to right as the tokens stand. */
export function stageNodes(step, round) {
  const cards = Array.from({ length: draftedBy(step, round) }, (_, offset) => proposalCard(offset, step, round));
  const token = round.tokens[step.offset];
  const numbers = (one) => [one.q !== null && ["q", number(one.q)], ["p", number(one.p)], ["π", number(one.pi)]];
  if (["accept", "reject", "extend"].includes(step.phase)) cards[step.offset]?.setAttribute("aria-current", "step");
  if (step.phase === "resample") cards.splice(step.offset + 1, 0, card("drawn", token, numbers(token)));
  if (step.phase === "write") cards.push(card("written", token, numbers(token)));
  cards.find((node) => node.dataset.state === "drawn")?.setAttribute("aria-current", "step");
  return cards;
}

/** What happens in a step, in words; a list of strings and nodes. */
export function narrate(step, round, run) {
  const drafted = draftedBy(step, round);
  const token = round.tokens[step.offset];
  const left = isClosing(step, round) ? Math.max(0, drafted - step.offset - 1) : 0;
  const tail = left > 0 ? "the " + (left === 1 ? "one" : left) + " after it " + (left === 1 ? "is" : "are") + " never examined." : "";
  if (step.phase === "propose") return ["The drafter proposes " + count(drafted, "token") + (drafted > 1 ? ", one after the other." : ".")];
  if (step.phase === "verify") {
    return ["The verifier scores " + (drafted > 1 ? "all " + drafted : "it") + " in one forward pass" +
      (drafted < draftLength(round) ? ", and the place after " + (drafted > 1 ? "them." : "it.") : ".")];
  }
  if (step.phase === "extend") {
    return [(drafted > 2 ? "All are accepted" : "It is accepted") + ", so the drafter proposes one more, in the place that has been scored already."];
  }
  if (step.phase === "keep") return ["Every proposal is kept: nobody examines the drafter."];
  if (step.phase === "write") return ["The verifier writes ", quoted(token), " itself: one forward pass, one token."];
  if (step.phase === "resample") {
    const guide = run.method === "speed" ? "p" : "π";
    return ["In its place ", quoted(token), " is drawn from the residual: where " + guide + " has more than q."];
  }
  const [coin, acceptance] = compared(token.coin, token.acceptance);
  const passed = step.phase === "accept";
  return ["Coin " + coin + (passed ? " < " : " ≥ ") + acceptance + ": ", quoted(examinedOf(token)),
    passed ? " is accepted." : " is rejected" + (tail ? "; " + tail : "."), passed && tail ? " The run ends here; " + tail : ""];
}
