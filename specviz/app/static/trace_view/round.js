/**
 * One step of one round as cards, one a draft token, and as a sentence. Shows only what the trace recorded; of a draft
 * token that was never examined that is q alone.
 */

import { chip, count, draftLength, draftedFirst, el, isExamined, list, percent, percents } from "../shared/dom.js";

const STATE_WORDS = { unseen: "not reached", kept: "kept unchecked", drawn: "drawn instead", written: "written" };
const FATES = { accepted: "kept", kept: "kept", rejected: "out", unseen: "unseen", drawn: "own", written: "own" };

/** The draft token that a token's coin was about. */
const examinedOf = (token) => (token.draft && typeof token.draft === "object" ? token.draft : token);

/** Whether a step ends the examination of its round: draft tokens after `offset` stay unexamined. */
function isClosing(step, round) {
  const rejected = step.phase === "reject" || step.phase === "resample";
  return rejected || (["accept", "keep", "write"].includes(step.phase) && step.offset === round.tokens.length - 1);
}

/** The state of the draft token at `offset` by this step. */
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

/** The chance of keeping a draft token as a bar, and the coin on it once it has fallen. */
function chance(token, fallen) {
  const fill = el("i", "sv-chance-fill");
  fill.style.width = 100 * Math.min(1, Math.max(0, token.acceptance)) + "%";
  const bar = el("div", "sv-chance", fill);
  bar.setAttribute("aria-hidden", "true");
  if (fallen) {
    const coin = el("u", "sv-chance-coin");
    coin.style.left = 100 * token.coin + "%";
    bar.append(coin);
  }
  return bar;
}

function words(state, proposal, token) {
  if (state === "proposed") return "drafter: " + percent(proposal?.q);
  if (state === "scored") return "chance " + percent(token.acceptance);
  if (state === "accepted") return "kept, " + percent(token.acceptance);
  if (state === "rejected") return "rejected, " + percent(token.acceptance);
  return STATE_WORDS[state];
}

/** A card: a chip, its chance and coin, its state in words. */
function card(state, token, index, ...more) {
  const node = el("li", "sv-card " + state, chip(token, FATES[state] ?? ""), ...more);
  node.dataset.state = state;
  node.dataset.testid = "card";
  if (index !== null) node.dataset.index = String(index);
  return node;
}

function draftCard(offset, step, round, first) {
  const token = round.tokens[offset];
  const proposal = round.proposals[offset];
  const state = stateOf(offset, step, round);
  const known = ["scored", "accepted", "rejected"].includes(state) && isExamined(token);
  return card(state, proposal, token && state !== "unseen" ? first + offset : null,
    known ? chance(token, state !== "scored") : el("div", "sv-chance is-unknown"),
    el("p", "sv-card-state", words(state, proposal, token)));
}

/** How many draft tokens there are by this step. */
function draftedBy(step, round) {
  const first = draftedFirst(round);
  return step.offset < first ? first : list(round.proposals).length;
}

/** The cards of a step, from left to right as the tokens stand; `first` is the index of the round's first token. */
export function roundCards(step, round, first) {
  const cards = Array.from({ length: draftedBy(step, round) }, (_, offset) => draftCard(offset, step, round, first));
  const token = round.tokens[step.offset];
  const own = (state) => card(state, token, first + step.offset, el("div", "sv-chance is-unknown"), el("p", "sv-card-state", STATE_WORDS[state]));
  if (["accept", "reject", "extend"].includes(step.phase)) cards[step.offset]?.setAttribute("aria-current", "step");
  if (step.phase === "resample") cards.splice(step.offset + 1, 0, own("drawn"));
  if (step.phase === "write") cards.push(own("written"));
  cards.find((node) => node.dataset.state === "drawn")?.setAttribute("aria-current", "step");
  return cards;
}

/** What happens in a step, in words; a list of strings and nodes. */
export function narrate(step, round, run) {
  const drafted = draftedBy(step, round);
  const token = round.tokens[step.offset];
  const left = isClosing(step, round) ? Math.max(0, drafted - step.offset - 1) : 0;
  const tail = left > 0 ? "the " + (left === 1 ? "one" : left) + " after it " + (left === 1 ? "is" : "are") + " not reached." : "";
  if (step.phase === "propose") return ["The drafter proposes " + count(drafted, "token") + (drafted > 1 ? ", one after the other." : ".")];
  if (step.phase === "verify") {
    return ["The verifier scores " + (drafted > 1 ? "all " + drafted : "it") + " in one call" +
      (drafted < draftLength(round) ? ", and the place after " + (drafted > 1 ? "them." : "it.") : ".")];
  }
  if (step.phase === "extend") {
    return [(drafted > 2 ? "All are kept" : "It is kept") + ", so the drafter proposes one more, in the place that has been scored already."];
  }
  if (step.phase === "keep") return ["Every draft token is kept: nobody examines the drafter."];
  if (step.phase === "write") return ["The verifier writes ", chip(token, "own"), " itself: one call, one token."];
  if (step.phase === "resample") {
    const guide = run.method === "speed" ? "the verifier" : "the target";
    return ["In its place ", chip(token, "own"), " is drawn, from what " + guide + " wanted more of."];
  }
  const [coin, acceptance] = percents(token.coin, token.acceptance);
  const passed = step.phase === "accept";
  return ["The coin shows " + coin + (passed ? ", within " : ", beyond ") + acceptance + ": ", chip(examinedOf(token), passed ? "kept" : "out"),
    passed ? " is kept." : " is rejected" + (tail ? "; " + tail : "."), passed && tail ? " The run ends here; " + tail : ""];
}

/** A whole round in a sentence, while a run goes on. */
export function summary(round, run) {
  if (run.method === "verifier_only") return ["One call of the verifier, one token."];
  if (run.method === "drafter_only") return ["Every draft token is kept: nobody examines the drafter."];
  return [round.accepted + " of " + count(list(round.proposals).length, "draft token") + " kept; " +
    count(round.tokens.length, "token") + " from one call of the verifier."];
}
