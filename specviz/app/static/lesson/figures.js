/**
 * The figures of a case of six words, by the names that a lesson's files use, computed with methods.js. Knows nothing of the
 * page or of languages.
 */

import { PRESETS, START, WORDS, rowOf, ruled, turnsAt } from "../playground/cases.js";
import { ROUNDING, blockEfficiency, coinsOf, largest, simulate, totalVariation } from "../playground/methods.js";
import { evaluate } from "../shared/expression.js";

export const THROWS = 1000;

/** A state of the playground from a lesson's {case, method, lenience, temperature}. */
export const stateOf = ({ case: name, ...more }) => ({ ...START, ...PRESETS[name], ...more });

/** How many of a thousand tokens a method changes beside lossless decoding, the coins being the same. */
export function changedTokens(state) {
  const coins = coinsOf(state.seed, THROWS);
  const lossless = simulate(ruled({ ...state, method: "speed", lenience: 0 }), coins);
  return simulate(ruled(state), coins).filter(({ word }, at) => word !== lossless[at].word).length;
}

/** Without what rounding left: a difference of equal distributions is 0, and people set round numbers. */
const clean = (value) => (Math.abs(value) < ROUNDING ? 0 : Number(value.toFixed(12)));

/** All figures of a state but how many tokens it changes, which takes two thousand draws: name -> [type, value]. */
export function figuresOf(state) {
  const view = ruled(state);
  const { q, p, q1, p1 } = view;
  const [sureQ, sureP] = [largest(q1), largest(p1)];
  const [drafted, wanted] = [q1.indexOf(sureQ), p1.indexOf(sureP)];
  const apart = totalVariation(q, p);
  const trusted = view.trusted ? WORDS.filter((_, word) => view.trusted[word]).join(", ") : "";
  const numbers = {
    acceptance_rate: view.acceptanceRate,
    rejection_rate: 1 - view.acceptanceRate,
    distance: totalVariation(view.target, p),
    drafter_distance: totalVariation(view.target, q),
    models_distance: apart,
    max_q: sureQ,
    max_p: sureP,
    gap: sureP - sureQ,
    chow_turns: turnsAt("cascade_chow", view),
    opt_turns: turnsAt("cascade_opt", view),
    score: Array.isArray(view.score) ? NaN : view.score ?? NaN,
    threshold: view.threshold ?? NaN,
    q_of_verifier_word: q[wanted],
    p_of_verifier_word: p[wanted],
    pi_of_drafter_word: view.target[drafted],
  };
  const found = Object.fromEntries(Object.entries(numbers).map(([name, value]) => [name, ["number", clean(value)]]));
  return { ...found, lenience: ["plain", clean(state.lenience)], trusted: ["words", trusted], drafter_word: ["words", WORDS[drafted]], verifier_word: ["words", WORDS[wanted]] };
}

/** The figures of a block: tokens for each call of the verifier at a draft length, and what no length passes. */
const blockFigures = ({ rate, draft_length: length }) => ({
  yield: ["number", blockEfficiency(rate, length)],
  limit: ["number", 1 / (1 - rate)],
});

/**
 * Both sides of each rule for a recorded draft token at temperature 1: as its run recorded them, or computed from both models' top
 * tokens. `q` and `p` begin with the draft token.
 */
export const rulingsOf = ({ q, p, asked }) => asked.map(({ method, lenience, recorded }) => {
  const { tree, score_label, threshold_label } = rowOf({ method });
  const side = (name) => recorded?.[name] ?? evaluate(tree[name], { q, p, q1: q, p1: p }, lenience, 0);
  const [score, threshold] = [side("score"), side("threshold")];
  return { method, lenience, score, threshold, trusted: score >= threshold, score_label, threshold_label };
});

/** What a step's browser computes, by the names its texts use. */
export function computedOf({ kind, data }) {
  if (kind === "block") return blockFigures(data);
  if (kind === "rule") {
    return Object.fromEntries(rulingsOf(data).flatMap(({ method, score, threshold, lenience }) =>
      Object.entries({ score: ["percent", score], threshold: ["percent", threshold], lenience: ["plain", lenience] }).map(([name, value]) => [method + "." + name, value])));
  }
  if (kind !== "distributions") return {};
  const named = Object.entries(data.states).map(([name, given]) => [name, stateOf(given)]).flatMap(([name, state]) =>
    Object.entries({ ...figuresOf(state), changed: ["count", changedTokens(state)] }).map(([key, value]) => [name ? name + "." + key : key, value]));
  return Object.fromEntries(named);
}
