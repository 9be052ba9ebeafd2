/**
 * Several runs side by side, each in a pane with its settings in the head. Shows the tokens at which texts differ, and why.
 *
 * Draws the lines of `specviz/serving/lines.py` and computes no figures. All text in them is untrusted, so nodes
 * are built only from text, never from markup. A recorded comparison replays: each step is one verifier call in every pane.
 *
 * createCompareView(root, {methods, menu, pairs, sweep, counts, around, onEnd}) -> {update(value), refresh()}
 *   root      the element holding compare_view.html
 *   methods, menu   as for createHead
 *   pairs     titles of pairs, by key
 *   sweep     the measured scales of lenience, see lenience_track/scale.js
 *   counts    the valid numbers of panes
 *   around    () -> what all panes share: the settings of the form, with the keys of the available pairs in "offered"
 *   onEnd     called with all lines of a live comparison, once it has its table
 *   update    takes all lines so far. If they extend the previous lines, the new ones are drawn. Otherwise a new comparison starts at its
 *             line "compare"; until then the previous one stays. "" shows panes that have not run
 *   refresh   to be called when something in `around` has changed
 */

import { scaleOf } from "../lenience_track/scale.js";
import { attributes, el, finite, list, nameOf, string, waitingWords } from "../shared/dom.js";
import { methodMark } from "../shared/method_mark.js";
import { createShelf } from "../shared/shelf.js";
import { followTheme } from "../shared/theme.js";
import { SHARED_SETTINGS, differs } from "../trace_view/form.js";
import { createReader } from "../trace_view/reader.js";
import { createText } from "../trace_view/text.js";
import { chosen } from "./chosen.js";
import { drawCalls, positionNodes, tableNodes } from "./figures.js";
import { createHead, paneName, shortNames } from "./pane_head.js";
import { alike, verdictNodes } from "./verdicts.js";

const STEP = 110; // ms of a call of the verifier in a replay
const NOT_RUN = "Not run yet: press Run.";
const SHARED = "All panes share the prompt, the seed and the coins: where their texts differ, a rule made the difference.";

/** The settings that all panes share, by their names in a run's entry: what is said of each. */
const SETTINGS = [["temperature", "temperature"], ["top_k", "top-k"], ["top_p", "top-p"], ["min_p", "min-p"],
  ["repetition_penalty", "repetition penalty"], ["seed", "seed"]];
const OFF = { top_k: 0, top_p: 1, min_p: 0, repetition_penalty: 1 };

/** What the panes were made with; the prompt stands where it is written. */
function madeWith(runs) {
  const [run] = runs;
  const set = SETTINGS.filter(([key]) => Number.isFinite(run[key]) && run[key] !== OFF[key]).map(([key, name]) => name + " " + run[key]);
  const drafters = [...new Set(runs.map((one) => string(one.drafter)))].join(", ");
  const most = Number.isFinite(run.max_new_tokens) ? ["up to " + run.max_new_tokens + " tokens"] : [];
  return [[drafters + " → " + string(run.verifier), ...set, ...most].join(" · ")];
}

/** A token as a word of a sentence: white space is shown only where there is nothing else. */
const word = (token) => el("bdi", "sc-word", string(token?.label || token?.text).trim() || nameOf(token));
/** A sentence of words and tokens, as nodes. */
const sentence = (parts) => list(parts).map((part) => (typeof part === "string" ? part : word(part)));

function createCompareView(root, { methods = {}, menu = [], pairs = {}, sweep = null, counts, around, onEnd = () => {} }) {
  const [atLeast, atMost] = [counts[0], counts.at(-1)];
  const host = root.matches(".specviz-compare") ? root : root.querySelector(".specviz-compare");
  const find = (selector) => host.querySelector(selector);
  const [grid, tabs, says, failure, verdicts, more] = [".sc-panes", ".sc-tabs", ".sc-says", ".sv-failure", ".sc-verdicts", ".sc-more"].map(find);
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const read = createReader();
  let panes = [];
  let sources = []; // the panes when their runs began, by which lines count them: one may have been removed since
  let rows = [];
  let told = null; // the line of a recorded comparison
  let pinning = false; // whether a pin is just being repeated in another pane
  let steps = []; // rounds that a replay has not come to
  let timer = 0;

  // ---- lines

  function update(value) {
    const { anew, entries } = read(string(value));
    if (string(value) === "") return blank();
    if (anew) told = null;
    for (const entry of entries) if (entry) take(entry);
    for (const pane of panes) pane.text.flush();
    refresh();
    if (!told && entries.some((entry) => entry?.type === "table")) onEnd(string(value));
  }

  function take({ pane: at, ...entry }) {
    if (Number.isInteger(at)) {
      if (sources[at]) add(sources[at], entry);
    } else if (entry.type === "recorded") told = entry;
    else if (entry.type === "compare") open(Math.min(finite(entry.panes), atMost));
    else if (entry.type === "waiting") say("Now " + waitingWords(entry.queue_position) + " …");
    else if (entry.type === "table") conclude(entry);
    else if (entry.type === "error") fail(entry);
  }

  function open(count) {
    halt();
    rows = [];
    fail({ message: "" });
    say(told ? "" : SHARED);
    setPanes(count);
    sources = [...panes];
    for (const pane of panes) clear(pane);
    chosen.show(told ? string(told.key) : null);
  }

  function blank() {
    halt();
    [rows, told] = [[], null];
    chosen.show(null);
    say(NOT_RUN);
    for (const pane of panes) clear(pane);
    refresh();
  }

  function clear(pane) {
    pane.text.reset();
    [pane.run, pane.calls, pane.name, pane.marked] = [null, 0, "", false];
    verdicts.hidden = true;
  }

  function add(pane, entry) {
    if (entry.type === "run") pane.run = entry;
    else if (entry.type === "round") {
      if (told) pane.waiting.push(entry);
      else write(pane, entry);
    } else if (entry.type === "end" && !told) pane.text.end(string(entry.tail));
  }

  function write(pane, round) {
    pane.text.add(round);
    if (pane.run?.method !== "drafter_only") pane.calls += 1;
  }

  function conclude({ rows: fresh, says: parts }) {
    if (sources.some((pane) => !panes.includes(pane))) return; // it compares other panes
    rows = list(fresh).map((row) => ({ ...row, milliseconds: 1000 * row.seconds || null }));
    say(...sentence(parts), told?.note ? " " + string(told.note) : "");
    if (told) replay();
    else mark();
  }

  function say(...words) {
    says.replaceChildren(...words);
  }

  /** What went wrong, above what is shown, which stays. */
  function fail({ message }) {
    failure.textContent = string(message);
    failure.hidden = failure.textContent === "";
    document.querySelector("#compare-prompt textarea")?.setAttribute("aria-invalid", String(/prompt/i.test(failure.textContent)));
  }

  // ---- the replay: one call of the verifier a step, in every pane

  function replay() {
    const length = Math.max(0, ...sources.map((pane) => pane.waiting.length));
    steps = Array.from({ length }, (_, at) => sources.map((pane) => pane.waiting[at] ?? null));
    for (const pane of panes) pane.waiting = [];
    if (calm.matches) return finish();
    host.dataset.replays = "";
    step();
  }

  function step() {
    const due = steps.shift() ?? [];
    due.forEach((round, at) => round && write(sources[at], round));
    for (const pane of panes) pane.text.flush();
    drawBars();
    if (steps.length === 0) return finish();
    timer = setTimeout(whenSeen, STEP);
  }

  /** A replay waits while nobody can see it. */
  function whenSeen() {
    if (!host.isConnected) return;
    if (host.offsetParent === null || document.hidden) timer = setTimeout(whenSeen, STEP);
    else step();
  }

  function finish() {
    for (const due of steps.splice(0)) due.forEach((round, at) => round && write(sources[at], round));
    delete host.dataset.replays;
    for (const pane of panes) {
      pane.text.flush();
      pane.text.rest();
    }
    mark();
    refresh();
  }

  function halt() {
    clearTimeout(timer);
    steps = [];
    delete host.dataset.replays;
  }

  // ---- panes

  function setPanes(count) {
    while (panes.length > count) dropPane(panes.length - 1);
    while (panes.length < count) addPane();
  }

  function addPane() {
    const pane = { run: null, calls: 0, waiting: [], name: "", marked: false };
    const place = () => panes.indexOf(pane);
    const change = (next) => chosen.set(chosen.panes().map((one, at) => (at === place() ? next : one)), "input");
    pane.head = createHead({
      methods, menu,
      pairs: () => ({ titles: pairs, offered: list(around().offered), shared: around().pair }),
      scale: (one) => scaleOf(sweep, { method: one.method, pair: one.pair ?? around().pair, temperature: around().temperature, range: methods[one.method].range }),
      onChange: change,
      onAdd: () => grow(place()),
      onRemove: () => shrink(place()),
    });
    pane.stale = el("span", "sc-stale", "not run yet");
    pane.bars = [el("p", "sc-calls"), el("span", "sc-calls")];
    pane.jump = attributes(el("button", "sv-button sc-jump"), { type: "button" });
    pane.jump.addEventListener("click", () => pane.text.pin(rows[place()].parts_at));
    const box = attributes(el("div", "sv-text"), { role: "listbox", "data-testid": "text", dir: "auto" });
    pane.box = box;
    pane.node = el("section", "sc-pane", el("header", "sc-head", pane.head.name, pane.stale, pane.bars[0], pane.jump), box, pane.head.panel);
    pane.text = createText(box, {
      latest: false,
      onShow: () => {},
      onPin: (index) => index === null && !pinning && unpin(),
      onSelect: (index) => explain(place(), index),
    });
    pane.text.reset();
    pane.tab = attributes(el("button", "sc-tab", el("b", ""), pane.bars[1]), { type: "button" });
    pane.tab.addEventListener("click", () => grid.scrollTo({ left: pane.node.offsetLeft - grid.offsetLeft, behavior: calm.matches ? "auto" : "smooth" }));
    panes.push(pane);
    grid.append(pane.node);
    tabs.append(pane.tab);
  }

  function dropPane(at) {
    const [pane] = panes.splice(at, 1);
    pane.node.remove();
    pane.tab.remove();
  }

  /** One more pane beside pane `at`, with the same settings. */
  function grow(at) {
    const all = chosen.panes();
    chosen.set([...all, { ...all[at] }], "input");
    panes.at(-1)?.head.name.focus();
  }

  function shrink(at) {
    if (sources.includes(panes[at])) forgetMarks();
    dropPane(at);
    chosen.set(chosen.panes().filter((_, place) => place !== at), "input");
    panes[Math.min(at, panes.length - 1)]?.head.name.focus();
  }

  /** Without one of them, the panes are another comparison. */
  function forgetMarks() {
    for (const node of host.querySelectorAll("[data-badge]")) delete node.dataset.badge;
    [rows, told] = [[], null];
    verdicts.hidden = true;
    chosen.show(null);
    say("Press Run to compare these panes.");
  }

  /** Whether a pane shows another run than its head says. */
  function isStale(pane, at) {
    const [wanted, run] = [chosen.panes()[at], pane.run];
    if (!wanted || !run) return false;
    const pair = wanted.pair ?? around().pair;
    return differs(SHARED_SETTINGS, run, around()) || wanted.method !== run.method || wanted.lenience !== run.lenience || (run.method === "own_rule" && "rule" in around() && around().rule !== run.rule) || (Boolean(run.pair) && pair !== run.pair);
  }

  /** Everything around the texts. */
  function refresh() {
    const wanted = chosen.panes();
    const runs = panes.map((pane) => pane.run);
    const differ = new Set(wanted.map(({ pair }) => pair)).size > 1;
    host.style.setProperty("--panes", String(panes.length));
    const shown = panes.map((pane, at) => pane.run ?? wanted[at] ?? { method: "speed", lenience: 0, pair: null });
    const short = shortNames(shown, methods, shown.map(({ pair }) => string(pairs[pair ?? around().pair])));
    panes.forEach((pane, at) => {
      const settings = wanted[at] ?? shown[at];
      const run = pane.run;
      const key = settings.pair ?? around().pair;
      const note = differ && settings.method !== "verifier_only" ? string(pairs[key]) || key : "";
      pane.head.show(settings, { number: at + 1, note, canAdd: panes.length < atMost, canRemove: panes.length > atLeast });
      pane.name = run ? paneName(run, methods) + (note && " · " + note) : paneName(settings, methods);
      pane.node.dataset.pane = String(at);
      pane.node.setAttribute("aria-label", "Pane " + (at + 1) + ": " + pane.name);
      pane.box.setAttribute("aria-label", "Text of pane " + (at + 1) + ", token by token");
      pane.box.dataset.empty = run ? "" : NOT_RUN;
      pane.stale.hidden = !isStale(pane, at);
      pane.jump.hidden = !isMarked(rows[at], at) || !pane.marked;
      if (!pane.jump.hidden) pane.jump.textContent = "≠ " + (rows[at].parts_at + 1);
      pane.jump.setAttribute("aria-label", "Show where pane " + (at + 1) + " differs from pane 1");
      pane.tab.firstChild.textContent = short[at];
      pane.tab.setAttribute("aria-label", "Show pane " + (at + 1) + ": " + pane.name);
    });
    drawBars();
    seen();
    const made = runs.filter(Boolean);
    find(".sc-made").replaceChildren(...(made.length ? madeWith(made) : []));
    more.hidden = made.length === 0;
    const shownRows = rows.length ? rows : panes.map(() => ({}));
    const name = (at) => [at + 1 + " · ", methodMark(panes[at]?.run?.method, methods) ?? "", panes[at]?.name ?? ""];
    const positions = positionNodes(shownRows, name);
    find(".sc-table").replaceChildren(...tableNodes(shownRows, name, parting));
    find(".sc-positions .sc-table").replaceChildren(...positions);
    find(".sc-positions").hidden = positions.length === 0;
  }

  function drawBars() {
    const most = Math.max(1, ...panes.map((pane, at) => Math.max(pane.calls, finite(rows[at]?.verifier_calls))));
    panes.forEach((pane, at) => {
      for (const node of pane.bars) drawCalls(node, pane.calls, most, steps.length ? NaN : rows[at]?.milliseconds);
      for (const node of pane.bars) node.hidden = !pane.run;
    });
  }

  // ---- where texts differ, and why

  const isMarked = (row, at) => at > 0 && row?.shares_coins !== false && Number.isInteger(row?.parts_at);

  function mark() {
    rows.forEach((row, at) => {
      const pane = panes[at];
      if (!pane || pane.marked || !isMarked(row, at)) return;
      pane.marked = true;
      const words = "here the texts of pane 1 and pane " + (at + 1) + " differ";
      pane.text.mark(row.parts_at, panes.length > atLeast ? "≠1" : "≠", words);
      panes[0].text.mark(row.parts_at, panes.length > atLeast ? "≠" + (at + 1) : "≠", words);
      pane.text.revealToken(row.parts_at);
    });
    panes[0].text.revealToken(Math.min(...rows.filter(isMarked).map((row) => row.parts_at)));
  }

  function parting(at, row) {
    if (at === 0 || row.tokens === undefined) return "–";
    if (row.shares_coins === false) return "other draws";
    if (!Number.isInteger(row.parts_at)) return "same text";
    return el("span", "", "token " + (row.parts_at + 1) + ": ", ...sentence(row.parting));
  }

  /** A token was chosen: the verdicts on it in all panes, in each of which it is pinned. */
  function explain(at, index) {
    if (pinning) return;
    pinning = true;
    for (const [place, pane] of panes.entries()) {
      if (place === at) continue;
      if (alike(panes, at, index).includes(place) && pane.text.items()[index]) pane.text.pin(index);
      else if (pane.text.pinned() !== null) pane.text.clear();
    }
    verdicts.querySelector(".sc-columns").replaceChildren(...verdictNodes(panes, at, index, methods));
    verdicts.hidden = false;
    for (const pane of panes) pane.text.revealToken(); // the verdicts take room from the texts
    pinning = false;
  }

  function unpin() {
    pinning = true;
    for (const pane of panes) if (pane.text.pinned() !== null) pane.text.clear();
    verdicts.hidden = true;
    pinning = false;
  }

  // ---- what one does

  find(".sc-close").addEventListener("click", () => {
    const pane = panes.find((one) => one.text.pinned() !== null);
    const node = pane?.text.items()[pane.text.pinned()].node;
    unpin();
    node?.focus({ preventScroll: true });
  });
  host.addEventListener("keydown", (event) => event.key === "Escape" && !verdicts.hidden && unpin());

  /** On a phone one pane is in sight: which. */
  function seen() {
    const at = Math.round(grid.scrollLeft / Math.max(1, grid.clientWidth));
    panes.forEach((pane, place) => pane.tab.setAttribute("aria-pressed", String(place === at)));
  }
  grid.addEventListener("scroll", seen, { passive: true });

  chosen.listen((what) => {
    if (what === "shown") return;
    if (chosen.panes().length !== panes.length && chosen.panes().length >= atLeast) {
      if (rows.length && what === "input" && chosen.panes().length < panes.length) forgetMarks();
      setPanes(Math.min(chosen.panes().length, atMost));
    }
    refresh();
  });
  followTheme(host);
  setPanes(Math.min(Math.max(chosen.panes().length, atLeast), atMost));
  return { update, refresh };
}

/** Mount the component in gradio’s element. */
export function mount(element, { props, watch }) {
  const { group } = props;
  const told = (form) => window.specvizForm?.[form] ?? {};
  const around = () => ({ ...props.around, ...told(group), ...told(group + "pairs") });
  const shelf = createShelf("specviz-comparison", "compare");
  const view = createCompareView(element, {
    methods: props.methods, menu: props.menu, pairs: props.pairs, sweep: props.sweep, counts: props.counts, around,
    onEnd: shelf.keep,
  });
  document.addEventListener("specviz-form", ({ detail }) => string(detail).startsWith(group) && view.refresh());
  const show = () => view.update(props.value || shelf.get());
  watch("value", () => shelf.takes(string(props.value)) && show());
  show();
}
