/** A comparison in numbers: the folded table, and bars with the number of verifier calls of each pane. */

import { DASH, count, el, list, percent, signed } from "../shared/dom.js";

const fixed = (places, unit = "") => (value) =>
  Number.isFinite(value) ? signed(value, Math.abs(value).toFixed(places)) + unit : DASH;

/** The table's columns: heading, key in a row, how the value is written, what it means. */
const COLUMNS = [
  ["verifier calls", "verifier_calls", fixed(0), "Forward passes of the verifier, without reading the prompt."],
  ["tokens", "tokens", fixed(0), "Tokens written."],
  ["tokens per call", "block_efficiency", fixed(2), "Tokens written, divided by the calls of the verifier."],
  ["accepted", "acceptance_rate", percent, "Accepted draft tokens out of the draft tokens that were examined."],
  ["draft utilisation", "draft_utilisation", percent, "Accepted draft tokens out of all that were drafted, examined or not."],
  ["mean acceptance length", "mean_acceptance_length", fixed(2), "1 + accepted draft tokens per round: as vLLM counts, with a bonus token in every round."],
  ["verifier’s log-likelihood", "quality", fixed(2), "Of a token, on average, at temperature 1; nearer to 0 is likelier."],
  ["time alone", "milliseconds", fixed(0, " ms"), "Median time of the same request by itself."],
];

/** The bars: a pane’s calls out of `most`. */
export function drawCalls(node, calls, most, milliseconds) {
  const bar = el("i", "sc-bar");
  bar.style.width = (most > 0 ? (100 * calls) / most : 0) + "%";
  const time = Number.isFinite(milliseconds) ? " · " + milliseconds.toFixed(0) + " ms alone" : "";
  node.replaceChildren(el("span", "sc-count", el("b", "", String(calls)), calls === 1 ? " call" : " calls", time), el("span", "sc-track", bar));
  node.title = count(calls, "call") + " of the verifier";
}

/** The table of rows; `name(at)` and `parting(at, row)` give nodes. Columns that no row fills are left out. */
export function tableNodes(rows, name, parting) {
  const filled = COLUMNS.filter(([, key]) => rows.some((row) => Number.isFinite(row[key])));
  const heading = (words, title) => Object.assign(el("th", "", words), { scope: "col", title: title ?? "" });
  const head = el("tr", "", heading("pane"), ...filled.map(([words, , , title]) => heading(words, title)),
    heading("differs from pane 1", "The first token at which the text differs from that of pane 1."));
  const body = rows.map((row, at) => el("tr", "", Object.assign(el("th", "", ...name(at)), { scope: "row" }),
    ...filled.map(([, key, write]) => el("td", "", write(row[key]))), el("td", "", parting(at, row))));
  return [el("thead", "", head), el("tbody", "", ...body)];
}

/** A table of the share of rounds that accepted their first, second, … draft token; empty where no row has one. */
export function positionNodes(rows, name) {
  const rates = rows.map((row) => list(row.acceptance_rate_per_position));
  const positions = [...Array(Math.max(0, ...rates.map((each) => each.length))).keys()];
  const head = el("tr", "", el("th", "", "pane"), ...positions.map((at) => el("th", "", String(at + 1))));
  const body = rates.map((each, row) => el("tr", "", Object.assign(el("th", "", ...name(row)), { scope: "row" }), ...positions.map((at) => el("td", "", percent(each[at])))));
  return positions.length ? [el("thead", "", head), el("tbody", "", ...body)] : [];
}
