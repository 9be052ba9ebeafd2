/**
 * The steps of a run in order, and their times on its clock. Knows rounds and the order of events in them; draws nothing.
 */

import { draftLength, finite, isExamined } from "../shared/dom.js";

/**
 * The steps of rounds. A step: index of the `round`, `phase`, `offset` of its token in the round, `tokens` and `drafts`
 * (how many of the run's tokens and rejected drafts are on the page by then).
 *
 *   propose   the draft tokens are there             verify     the verifier has scored them
 *   accept    the coin accepted a draft token        reject     the coin rejected it
 *   keep      the rest is kept unexamined            resample   the replacement is drawn
 *   write     the verifier wrote a token itself
 */
export function stepsOf(rounds) {
  const steps = [];
  const unexamined = (token) => token !== undefined && token.accepted && !isExamined(token);
  let before = 0;
  rounds.forEach((each, round) => {
    const { tokens } = each;
    const add = (phase, offset, shown, drafts = shown) =>
      steps.push({ round, phase, offset, tokens: before + shown, drafts: before + drafts });
    if (draftLength(each) > 0) add("propose", 0, 0);
    if (tokens.some(isExamined)) add("verify", 0, 0);
    tokens.forEach((token, offset) => {
      if (!isExamined(token)) {
        if (!token.accepted) add("write", offset, offset + 1);
        else if (!unexamined(tokens[offset + 1])) add("keep", offset, offset + 1);
      } else if (token.accepted) {
        add("accept", offset, offset + 1);
      } else {
        add("reject", offset, offset, offset + 1);
        add("resample", offset, offset + 1);
      }
    });
    before += tokens.length;
  });
  return steps;
}

/** A round as far as a step has come, or null while no token of it is decided; `first` is the index of its first token. */
export function roundSoFar(round, step, first) {
  const decided = step.drafts - first;
  if (decided === 0) return null;
  const known = round.tokens.slice(0, decided);
  return { ...round, tokens: known.slice(0, step.tokens - first), examined: known.filter(isExamined).length,
    accepted: known.filter((token) => isExamined(token) && token.accepted).length };
}

/** Seconds that a round took. */
export const secondsOf = (round) =>
  Math.max(finite(round.seconds), finite(round.drafter_seconds) + finite(round.verifier_seconds));

/** Seconds from the round's beginning at which a step has ended, as measured. */
export function clockOf(step, round) {
  const drafted = finite(round.drafter_seconds);
  return { propose: drafted, verify: drafted + finite(round.verifier_seconds) }[step.phase] ?? secondsOf(round);
}
