/**
 * Cases for the playground and for lessons: six words, distributions over them, and a method's ruling on a case. Draws nothing.
 */

import { distributions, ruling, turningLenience } from "./methods.js";

let rows = {}; // the methods' rows, as the server gave them
export const setRows = (methods) => {
  rows = methods;
};
/** A method's row, with the case's own rule, as the server read it, where it has one. */
export const rowOf = ({ method, rule }) => (method === OWN_RULE ? { ...rows[method], ...rule } : rows[method]);
/** Whether a row says all that is needed to compute it here. */
export const isComputed = (name, row) => (row.is_compared && Boolean(row.tree.test || row.tree.ratio)) || ["drafter_only", "verifier_only"].includes(name);
export const OWN_RULE = "own_rule";

export const WORDS = ["Canberra", "Sydney", "Melbourne", "Perth", "a", "the"];
export const PRESETS = {
  "confident and wrong": { q1: [0.16, 0.66, 0.1, 0.04, 0.02, 0.02], p1: [0.8, 0.1, 0.04, 0.02, 0.02, 0.02] },
  "confident and right": { q1: [0.7, 0.16, 0.06, 0.03, 0.02, 0.03], p1: [0.86, 0.06, 0.03, 0.02, 0.01, 0.02] },
  "both unsure": { q1: [0.22, 0.3, 0.18, 0.12, 0.1, 0.08], p1: [0.28, 0.2, 0.16, 0.12, 0.1, 0.14] },
  "they agree": { q1: [0.5, 0.25, 0.12, 0.06, 0.04, 0.03], p1: [0.52, 0.24, 0.12, 0.06, 0.03, 0.03] },
  "verifier sure": { q1: [0.3, 0.35, 0.15, 0.1, 0.04, 0.06], p1: [0.95, 0.02, 0.01, 0.01, 0.005, 0.005] },
};
export const STEP = 0.01;
export const START = { ...PRESETS["confident and wrong"], method: "cascade_tokenV3", lenience: 0.5, temperature: 1, seed: 1 };

/** What a method makes of a case. */
export const ruled = (state) =>
  ruling(state.method, distributions(state.q1.map(Math.log), state.p1.map(Math.log), state.temperature), state.lenience, rowOf(state));

/** From which lenience on a method trusts the drafter in both models' distributions. */
export const turnsAt = (method, b) => turningLenience(rows[method], b);
