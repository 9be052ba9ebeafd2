/**
 * The scale of a method's lenience at a temperature: piecewise linear through the leniences that a sweep measured, as
 * `specviz/app/components/lenience_track.py` makes it. A measured row is [lenience, acceptance, quality]; a knot also has its position:
 * [lenience, position, acceptance, quality]. Knows nothing of the page.
 */

const EVEN = 0.08; // share of a scale that is linear in the lenience, so that leniences with equal acceptance rates still take up length
const FLAT = 0.01; // if the acceptance rate rises by less over the whole curve, the scale is linear in the lenience

const LENIENCE = 0;
const POSITION = 1;
const ACCEPTANCE = 2;
const QUALITY = 3;

/** Column `to` where column `from` is `value`; both ascend with the knots. */
function along(knots, from, to, value) {
  const last = knots.length - 1;
  const held = Math.min(Math.max(value, knots[0][from]), knots[last][from]);
  let left = 0;
  while (left < last - 1 && knots[left + 1][from] <= held) left += 1;
  const [low, high] = [knots[left], knots[left + 1]];
  const share = (held - low[from]) / (high[from] - low[from]);
  return low[to] * (1 - share) + high[to] * share;
}

/** Between two temperatures that were measured, as far between their figures; null beyond them. */
function between(ladder, temperature) {
  if (!ladder?.length || !(temperature >= ladder[0][0] && temperature <= ladder.at(-1)[0])) return null;
  const above = ladder.find(([heat]) => heat >= temperature);
  const below = ladder.findLast(([heat]) => heat <= temperature);
  const share = above === below ? 0 : (temperature - below[0]) / (above[0] - below[0]);
  return mixed(below[1], above[1], share);
}

function mixed(low, high, share) {
  if (Array.isArray(low)) return low.map((each, at) => mixed(each, high[at], share));
  return low * (1 - share) + high * share;
}

/** The knots of measured rows: even in the acceptance rate, but for a share; in the lenience where the curve is flat. */
function placed(rows) {
  const [first, last] = [rows[0], rows.at(-1)];
  const gain = last[1] - first[1];
  const share = gain > FLAT ? EVEN : 1;
  return rows.map(([lenience, acceptance, quality]) => {
    const way = (lenience - first[0]) / (last[0] - first[0]);
    const risen = share < 1 ? (acceptance - first[1]) / gain : 0;
    return [lenience, share * way + (1 - share) * risen, acceptance, quality];
  });
}

/** A method's scale: its measured knots, or an even one. `quality` and `verifier` (the verifier's own) only where measured. */
export function scaleOf(sweep, { method, pair, temperature, range }) {
  const known = sweep && pair === sweep.pair;
  const rows = known ? between(sweep.scales[method], temperature) : null;
  const knots = rows && placed(rows);
  const even = [[range[0], 0, 0, 0], [range[1], 1, 0, 0]];
  const used = knots || even;
  return {
    knots: used,
    isMeasured: knots !== null,
    isOtherPair: !known,
    isFlat: knots !== null && knots.at(-1)[ACCEPTANCE] - knots[0][ACCEPTANCE] <= FLAT,
    verifier: knots && between(sweep.verifier, temperature),
    position: (lenience) => along(used, LENIENCE, POSITION, lenience),
    lenience: (position) => along(used, POSITION, LENIENCE, position),
    acceptance: (lenience) => along(used, LENIENCE, ACCEPTANCE, lenience),
    quality: (lenience) => along(used, LENIENCE, QUALITY, lenience),
  };
}

const NEAR = 0.004;

/** The shortest number that lies near a position of a scale, within its range. */
export function shortLenience(scale, position) {
  const exact = scale.lenience(position);
  const [low, high] = [scale.knots[0][LENIENCE], scale.knots.at(-1)[LENIENCE]];
  for (let digits = 1; digits < 9; digits += 1) {
    const short = Math.min(Math.max(Number(exact.toFixed(digits)), low), high);
    if (Math.abs(scale.position(short) - position) <= NEAR) return short;
  }
  return exact;
}
