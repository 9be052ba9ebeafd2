/**
 * Converts a state of the playground to a query of the page, and back. The query has names that the server ignores: `play` is
 * method:lenience:temperature, `case` a preset (or `q` and `p` the probabilities), `own` the text of a custom rule.
 *
 * queryOf(state) -> "?tab=playground&…"
 * stateOf(query, methods, names) -> {state, rule}: the valid parts of a query, and the text of a rule that is not parsed yet; null
 * if the query names no state
 */

import { OWN_RULE, PRESETS, WORDS } from "./cases.js";
import { total } from "./methods.js";

export const PLACE = "playground"; // of the page
const PLACES = 4; // decimal places of a probability
const [COLDEST, HOTTEST] = [0, 2];

const presetOf = ({ q1, p1 }) => Object.keys(PRESETS).find((name) => PRESETS[name].q1 === q1 && PRESETS[name].p1 === p1);
const written = (distribution) => distribution.map((mass) => String(Number(mass.toFixed(PLACES)))).join(",");

export function queryOf(state) {
  const query = new URLSearchParams({ tab: PLACE });
  const preset = presetOf(state);
  if (preset) query.set("case", preset);
  else {
    query.set("q", written(state.q1));
    query.set("p", written(state.p1));
  }
  query.set("play", [state.method, state.lenience, state.temperature].join(":"));
  if (state.method === OWN_RULE && state.rule) query.set("own", state.rule.expression);
  return "?" + query;
}

function distributionOf(text) {
  const masses = (text ?? "").split(",").map(Number);
  const sum = total(masses);
  return masses.length === WORDS.length && masses.every((mass) => mass >= 0) && sum > 0 && sum < Infinity ? masses.map((mass) => mass / sum) : null;
}

const isWithin = (value, [low, high]) => value >= low && value <= high;

export function stateOf(query, methods, names) {
  const asked = new URLSearchParams(query);
  const [method, lenience, temperature] = (asked.get("play") ?? "").split(":");
  const state = {};
  if (Object.hasOwn(PRESETS, asked.get("case") ?? "")) Object.assign(state, PRESETS[asked.get("case")]);
  const [q1, p1] = ["q", "p"].map((name) => distributionOf(asked.get(name)));
  if (q1 && p1) Object.assign(state, { q1, p1 });
  if (names.includes(method)) {
    const { range, default_lenience: usual } = methods[method];
    Object.assign(state, { method, lenience: lenience !== "" && isWithin(Number(lenience), range) ? Number(lenience) : usual });
  }
  if (temperature && isWithin(Number(temperature), [COLDEST, HOTTEST])) state.temperature = Number(temperature);
  return Object.keys(state).length ? { state, rule: asked.get("own") } : null;
}
