/**
 * Several runs side by side: one trace view a pane, the tokens at which their texts diverge, and one table.
 *
 * Draws the lines of `specviz/serving/comparison.py` and computes no figure. All text in them is untrusted, so nodes
 * are only ever built from text, never from markup.
 *
 * createCompareView(root, {methods, sources}) -> {update(value)}
 *   root      the element holding compare_view.html
 *   methods, sources   as for createTraceView
 *   update    takes all lines so far: what they add to the last ones is drawn, anything else starts anew
 */

import { DASH, el, finite, list, quoted, signed, string, waitingWords } from "../shared/dom.js";
import { methodMark } from "../shared/method_mark.js";
import { followTheme } from "../shared/theme.js";
import { createReader } from "../trace_view/reader.js";
import { createTraceView } from "../trace_view/trace_view.js";

const MOST_PANES = 4;
const percent = (value) => (Number.isFinite(value) ? Math.round(100 * value) + "%" : DASH);
const fixed = (places, unit = "") => (value) =>
  Number.isFinite(value) ? signed(value, Math.abs(value).toFixed(places)) + unit : DASH;

/** The table's columns: heading, key in a row, how the value is written, what it means. */
const COLUMNS = [
  ["tokens", "tokens", fixed(0), "Tokens emitted."],
  ["acceptance", "acceptance_rate", percent, "Accepted proposals out of the proposals that were examined."],
  ["tokens per verifier call", "block_efficiency", fixed(2), "Tokens written, divided by the rounds; each round is one call of the verifier."],
  ["verifier calls", "verifier_calls", fixed(0), "Forward passes of the verifier, without reading the prompt."],
  ["tokens/s in batch", "batch_speed", fixed(1), "Tokens of the pane divided by its time, while all panes run together."],
  ["tokens/s alone", "alone_speed", fixed(1), "The same run by itself."],
  ["speed-up", "speed_up", fixed(2, "×"), "Tokens/s of the pane alone, divided by those of Verifier only alone."],
  ["verifier log-likelihood", "quality", fixed(2), "Of a token, on average, at temperature 1; nearer to 0 is likelier."],
];

/** The settings that all panes share, by their names in a run's entry: what is said of each. */
const SHARED = [["temperature", "temperature"], ["top_k", "top-k"], ["top_p", "top-p"], ["min_p", "min-p"],
  ["repetition_penalty", "repetition penalty"], ["seed", "seed"]];
const OFF = { top_k: 0, top_p: 1, min_p: 0, repetition_penalty: 1 };
const MOST_OF_A_PROMPT = 90;

/** What the panes were made with, as nodes: a result stays when the controls move on. */
function madeWith(run) {
  const set = SHARED.filter(([key]) => Number.isFinite(run[key]) && run[key] !== OFF[key]).map(([key, name]) => name + " " + run[key]);
  const prompt = string(run.prompt).replace(/\s+/g, " ").trim();
  const models = string(run.drafter) + " → " + string(run.verifier);
  const tokens = Number.isFinite(run.max_new_tokens) ? ["up to " + run.max_new_tokens + " tokens"] : [];
  const short = prompt.length > MOST_OF_A_PROMPT ? prompt.slice(0, MOST_OF_A_PROMPT).trimEnd() + "…" : prompt;
  return [el("q", "", short), " · " + [models, ...set, ...tokens].join(" · ")];
}

/** A pane's trace, for saving. */
const linesOf = (entries) => entries.map((entry) => JSON.stringify(entry) + "\n").join("");

/** A sentence of words and tokens, as nodes. */
const sentence = (parts) => list(parts).map((part) => (typeof part === "string" ? part : quoted(part)));

function createCompareView(root, { methods = {}, sources = null } = {}) {
  const host = root.matches(".specviz-compare") ? root : root.querySelector(".specviz-compare");
  const find = (selector) => host.querySelector(selector);
  const grid = find(".sc-panes");
  const blank = find("template").content;
  const read = createReader();
  let panes, rows;
  let pairing = false; // whether a pin is just being repeated in another pane

  function reset() {
    panes = [];
    rows = [];
    grid.replaceChildren();
    find(".sc-failure").hidden = true;
    find(".sc-doing").textContent = find(".sc-waiting").textContent = "";
  }

  function update(value) {
    const { anew, entries } = read(string(value));
    if (anew) reset();
    for (const entry of entries) if (entry) show(entry);
    for (const pane of panes) pane.view.take(pane.fresh.splice(0), () => linesOf(pane.entries));
    if (rows.length > 0) mark();
    else if (panes.some((pane) => pane.name)) write(panes.map((pane) => ({ name: pane.name })));
    find(".sc-common").hidden = panes.length === 0;
    find(".sc-empty").hidden = panes.length > 0 || !find(".sc-failure").hidden;
    find(".sc-results").hidden = !panes.some((pane) => pane.name);
  }

  function show({ pane, ...entry }) {
    if (panes[pane]) add(panes[pane], entry);
    else if (entry.type === "compare") open(Math.min(finite(entry.panes), MOST_PANES));
    else if (entry.type === "waiting") find(".sc-waiting").textContent = "Now " + waitingWords(entry.queue_position) + " …";
    else if (entry.type === "said") find(".sc-doing").textContent = string(entry.text);
    else if (entry.type === "doing") find(".sc-doing").textContent = string(entry.text) + " …";
    else if (entry.type === "table") draw(list(entry.rows));
    else if (entry.type === "error") fail(entry);
  }

  // ---- panes

  function open(count) {
    find(".sc-waiting").textContent = "";
    for (let at = 0; at < count; at += 1) {
      const title = el("h3", "sc-title", "Pane " + (at + 1));
      const note = el("p", "sc-note");
      const node = el("section", "sc-pane", title, note, blank.cloneNode(true));
      node.dataset.pane = String(at);
      grid.append(node);
      hideDrafts(node);
      const pane = { node, title, note, entries: [], fresh: [], done: false, marked: null, method: "", name: "" };
      pane.view = createTraceView(node, { methods, sources, latest: false, onSelect: (index) => follow(at, index) });
      panes.push(pane);
    }
  }

  function hideDrafts(node) {
    node.querySelector(".specviz").classList.toggle("sv-show-drafts", find('[data-show="drafts"]').checked);
  }

  function add(pane, entry) {
    pane.entries.push(entry);
    pane.fresh.push(entry);
    pane.done ||= entry.type === "end";
    if (entry.type !== "run") return;
    const method = Object.hasOwn(methods, entry.method) ? methods[entry.method] : {};
    const drafts = entry.method !== "verifier_only";
    const leans = !string(entry.method).endsWith("_only");
    const length = entry.draft_length === null ? "auto" : finite(entry.draft_length);
    const settings = [leans && "α = " + finite(entry.lenience), drafts && "K = " + length];
    const title = string(method.title) || string(entry.method);
    const words = panes.indexOf(pane) + 1 + " · " + title;
    pane.method = entry.method;
    pane.name = leans ? title + " (α = " + finite(entry.lenience) + ")" : title;
    if (pane === panes[0]) find(".sc-made").replaceChildren(...madeWith(entry));
    pane.title.replaceChildren(panes.indexOf(pane) + 1 + " · ", methodMark(entry.method, methods) ?? "", title + " ", el("small", "", settings.filter(Boolean).join(" · ")));
    pane.node.setAttribute("aria-label", "Pane " + words);
  }

  /** A run broke off: the sentence once, above all panes. */
  function fail(entry) {
    find(".sc-failure").hidden = false;
    find(".sc-failure").textContent = string(entry.message);
    find(".sc-doing").textContent = "";
    for (const pane of panes.filter((one) => !one.done)) add(pane, { type: "error", message: "" });
  }

  // ---- where the texts diverge

  /** Mark the tokens, once each: the nodes are new in every run. */
  function mark() {
    rows.forEach((row, at) => {
      const pane = panes[at];
      if (!pane || !Number.isInteger(row.parts_at) || pane.marked === row.parts_at) return;
      pane.marked = row.parts_at;
      const words = "here the texts of pane 1 and pane " + (at + 1) + " part";
      pane.view.mark(row.parts_at, "≠1", words);
      panes[0].view.mark(row.parts_at, "≠" + (at + 1), words);
      pane.note.replaceChildren(parting(at, row), ": ", ...sentence(row.parting));
    });
  }

  /** The button that shows where a pane diverges from the first one. */
  function parting(at, row) {
    const button = el("button", "sc-parting", "≠ token " + (row.parts_at + 1));
    button.type = "button";
    button.title = "Show where the texts of pane 1 and pane " + (at + 1) + " part";
    button.addEventListener("click", () => {
      panes[at].node.scrollIntoView({ block: "nearest" });
      panes[at].view.pin(row.parts_at);
    });
    return button;
  }

  /** A pin on a token where two texts diverge is repeated in the other one. */
  function follow(at, index) {
    if (pairing) return;
    const others = rows.flatMap((row, other) => (other > 0 && row.parts_at === index ? [other] : []));
    const partners = at === 0 ? others : others.includes(at) ? [0] : [];
    pairing = true;
    for (const partner of partners) panes[partner].view.pin(index);
    pairing = false;
  }

  // ---- the table

  function draw(fresh) {
    rows = fresh.filter((row) => row !== null && typeof row === "object");
    find(".sc-doing").textContent = "";
    write(rows);
  }

  /** The table of these rows; before there are figures, of the panes' names alone, so that nothing moves when they come. */
  function write(rows) {
    const greedy = rows.some((row) => string(row.verdict) !== "");
    const heading = (name, title) => {
      const cell = el("th", "", name);
      cell.scope = "col";
      if (title) cell.title = title;
      return cell;
    };
    const head = el("tr", "", heading("pane"), ...COLUMNS.map(([name, , , title]) => heading(name, title)),
      heading("leaves pane 1", "The first token at which the pane’s text differs from that of pane 1."),
      greedy && heading("greedy text"));
    find(".sc-table").replaceChildren(el("thead", "", head), el("tbody", "", ...rows.map((row, at) => line(row, at, greedy))));
    const strayed = rows.flatMap((row, at) => (Number.isInteger(row.strayed_at) ? [[at + 1, row.strayed_at + 1]] : []));
    find(".sc-notes").textContent = strayed.map(([pane, token]) => "Alone, pane " + pane +
      " wrote another text from token " + token + " on: a coin fell within the rounding of a forward pass.").join(" ");
  }

  function line(row, at, greedy) {
    const name = el("th", "", at + 1 + " · ", methodMark(panes[at]?.method, methods), string(row.name));
    name.scope = "row";
    const parts = at === 0 || row.tokens === undefined ? DASH : Number.isInteger(row.parts_at) ? parting(at, row) : "same text";
    return el("tr", "", name, ...COLUMNS.map(([, key, write]) => el("td", "", write(row[key]))), el("td", "", parts),
      greedy && el("td", "", string(row.verdict) || DASH));
  }

  reset();
  followTheme(host);
  find(".sc-common").addEventListener("change", ({ target }) => {
    if (target.dataset.show === "charts") host.classList.toggle("sc-hide-charts", !target.checked);
    else panes.forEach((pane) => hideDrafts(pane.node));
  });
  return { update };
}

/** Mount the component in gradio’s element. */
export function mount(element, { props, watch }) {
  const { methods, sources } = props;
  const view = createCompareView(element, { methods, sources });
  watch("value", () => view.update(props.value));
  view.update(props.value);
}
