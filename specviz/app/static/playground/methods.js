/**
 * The methods over small vocabularies, as in specviz/core/target.py; each follows the rule in its row. Distributions are arrays of numbers:
 * q and p at the temperature in use, q1 and p1 from the same logits at temperature 1; a is the lenience. Pure functions: random
 * numbers are arguments. Knows nothing of the page.
 */

import { evaluate } from "../shared/expression.js";

const TINY = 2.2250738585072014e-308;
const FAR = 1e4; // no lenience of interest is farther out
const HALVINGS = 70;
export const ROUNDING = 1e-12; // people set round numbers, and 1 − 0.7 should count as 0.3

export const total = (values) => values.reduce((sum, value) => sum + value, 0);
export const largest = (values) => Math.max(...values);
const scaled = (values, mass = total(values)) => values.map((value) => (mass > 0 ? value / mass : 0));

/** Probabilities of logits at a temperature; at 0 all on the (first) argmax. */
function distribution(logits, temperature = 1) {
  const top = largest(logits);
  const best = logits.indexOf(top);
  if (temperature === 0) return logits.map((_, word) => Number(word === best));
  return scaled(logits.map((logit) => Math.exp((logit - top) / temperature)));
}

/** Both models' distributions: {q, p, q1, p1}. */
export function distributions(drafterLogits, verifierLogits, temperature = 1) {
  return {
    q: distribution(drafterLogits, temperature), p: distribution(verifierLogits, temperature),
    q1: distribution(drafterLogits), p1: distribution(verifierLogits),
  };
}

/** TV(q, p): the mass that q has beyond p. */
export const totalVariation = (q, p) => total(q.map((mass, word) => Math.max(0, mass - p[word])));

/** The target π: q or p as a whole, or q where a word is trusted and the rest of its mass spread as p. */
function guideOf(method, { q, p }, trusted) {
  if (method === "drafter_only") return q;
  if (!trusted) return p;
  const deferred = total(q.map((mass, word) => (trusted[word] ? 0 : mass)));
  if (trusted.every((yes) => yes === trusted[0])) return trusted[0] ? q : p;
  return p.map((mass, word) => (trusted[word] ? q[word] : 0) + mass * deferred);
}

/**
 * One method's view of one position, by the trees of its row, {test, score, threshold, ratio, share}: the distributions, {score, threshold} (null unless
 * the test has two sides) and trusted by word (null without a test), {acceptance, residual, target} by word, the expected
 * acceptanceRate, and residualOf(word), what a rejection of that word draws from; `residual` is the average over all rejections.
 */
export function ruling(method, b, a, { tree }) {
  const { q, p } = b;
  const each = (tree) => q.map((_, word) => evaluate(tree, b, a, word));
  const side = (part) => (part ? (part.name === "(v)" ? each(part) : evaluate(part, b, a, 0)) : null);
  const [score, threshold] = [side(tree.score), side(tree.threshold)];
  const trusted = tree.test ? each(tree.test) : null;
  const guide = guideOf(method, b, trusted);
  const alone = { drafter_only: 1, verifier_only: 0 }[method];
  const ratio = tree.ratio ? each(tree.ratio) : q.map((mass, word) => guide[word] / Math.max(mass, TINY));
  const acceptance = ratio.map((value) => alone ?? (Math.max(0, Math.min(1, value)) || 0)); // 0 / 0 is 0
  const acceptanceRate = total(q.map((mass, word) => mass * acceptance[word]));
  const shares = tree.share ? each(tree.share) : null;
  const after = (share) => scaled(guide.map((mass, word) => Math.max(0, share * mass - q[word])));
  const same = method === "drafter_only" ? q : method === "verifier_only" ? p : shares ? null : after(1);
  const residualOf = (word) => same ?? after(shares[word]);
  const rejected = q.map((mass, word) => mass * (1 - acceptance[word]));
  const redrawn = () => p.map((_, word) => total(rejected.map((mass, from) => (mass > 0 ? mass * residualOf(from)[word] : 0))));
  const residual = same ?? scaled(redrawn());
  const emitted = () => {
    const again = shares ? redrawn() : residual.map((mass) => (1 - acceptanceRate) * mass);
    return q.map((mass, word) => mass * acceptance[word] + again[word]);
  };
  const target = tree.ratio ? emitted() : guide;
  return { ...b, method, lenience: a, score, threshold, trusted, acceptance, acceptanceRate, residual, residualOf, target };
}

/** The lenience from which on a test of the whole position holds; NaN where there is none. */
export function turningLenience({ tree }, b) {
  const holds = (a) => evaluate(tree.test, b, a, 0);
  let [low, high] = [-FAR, FAR];
  if (holds(low) || !holds(high)) return NaN;
  for (let step = 0; step < HALVINGS; step += 1) {
    const middle = (low + high) / 2;
    if (holds(middle)) high = middle;
    else low = middle;
  }
  return high;
}

/** Tokens a verifier call yields on average, if every proposal is accepted with the same probability. */
export const blockEfficiency = (acceptanceRate, draftLength) =>
  total(Array.from({ length: draftLength }, (_, before) => acceptanceRate ** before));

/** Coins for `count` positions from a seed: [draft, accept, resample] in [0, 1) each. The generator is mulberry32. */
export function coinsOf(seed, count) {
  let state = seed | 0;
  const uniform = () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  return Array.from({ length: count }, () => [uniform(), uniform(), uniform()]);
}

/** Inverse-CDF draw: the first word whose cumulative probability exceeds the uniform. */
function drawWord(probabilities, uniform) {
  const goal = uniform * total(probabilities);
  let sum = 0;
  const found = probabilities.findIndex((mass) => (sum += mass) > goal);
  return found < 0 ? probabilities.findLastIndex((mass) => mass > 0) : found;
}

/** Draft, examine, accept or resample once for each triple of coins: [{word, accepted}]. */
export function simulate(view, coins) {
  return coins.map(([draft, accept, resample]) => {
    const word = drawWord(view.q, draft);
    const accepted = accept < view.acceptance[word];
    if (accepted) return { word, accepted };
    const residual = view.residualOf(word);
    return { word: drawWord(total(residual) > 0 ? residual : view.target, resample), accepted }; // only rounding has none
  });
}
