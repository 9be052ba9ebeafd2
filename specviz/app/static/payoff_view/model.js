/**
 * What drafting costs and gains, as numbers. The unit of all costs is the verifier's time per token when it runs alone. `costs` is {draft, check, rest}, as in
 * `specviz.analysis.payoff`. Draws nothing.
 */

/** Tokens that a round writes: 1 + a + … + a^(K−1). */
export function tokensOf(kept, length) {
  let sum = 0;
  for (let step = 0; step < length; step += 1) sum += kept ** step;
  return sum;
}

/** The cost of a round. */
export const costOf = ({ draft, check, rest }, length) => 1 + check * (length - 1) + draft * length + rest;

/** How many times as fast as the verifier alone. */
export const speedUp = (kept, costs, length) => tokensOf(kept, length) / costOf(costs, length);

const lengths = (longest) => Array.from({ length: longest }, (_, at) => at + 1);

/** The fastest draft length. */
export const best = (kept, costs, longest) =>
  lengths(longest).reduce((one, each) => (speedUp(kept, costs, each) > speedUp(kept, costs, one) ? each : one));

/** The draft lengths that are faster than the verifier alone. */
export const paying = (kept, costs, longest) => lengths(longest).filter((each) => speedUp(kept, costs, each) > 1);

/** The smallest acceptance rate at which some draft length pays; null if none does. */
export function breakEven(costs, longest) {
  const pays = (kept) => paying(kept, costs, longest).length > 0;
  if (!pays(1)) return null;
  let [low, high] = [0, 1];
  for (let round = 0; round < 40; round += 1) {
    const middle = (low + high) / 2;
    if (pays(middle)) high = middle;
    else low = middle;
  }
  return high;
}

/**
 * The costs with so many texts in each pass, if a pass takes longer in proportion to its tokens. The verifier's pass then reads one token
 * of each text even without drafts, and a further token of every text costs more of it.
 */
export const inBatch = ({ draft, check, rest }, texts) => ({ draft, rest, check: (texts * check) / (1 + check * (texts - 1)) });
