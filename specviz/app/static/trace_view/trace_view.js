/**
 * The trace view: reads a "specviz-trace" (JSON lines) as it grows, and hands its entries to the parts of the view:
 * figures, text, inspector, chart, what-if slider, replay and footer.
 *
 * It knows the trace format and the DOM, and Plotly for the chart; it knows no model, no server and no page
 * around it. All text in a trace is untrusted, so nodes are only ever built from text, never from markup.
 *
 * createTraceView(root, {methods, plotly, onSelect, replay, onReplay, sources}) -> {update(value), pin(index), mark(index, badge, words)}
 *   root      the element holding trace_view.html
 *   methods   method name -> {title, formula, sentence, score_label, threshold_label, range}; range is what the
 *             what-if slider offers, [strict end, drafter's end]
 *   plotly    Plotly, or a promise of it; null or a promise of null means that there is no chart
 *   onSelect  called with (index, text) whenever a token is pinned
 *   replay    true shows the run step by step, with a transport, instead of whole
 *   onReplay  what the button "Replay this run" does; without it there is no such button
 *   sources   where the view's own files are, {template, plotly, styles, scripts}; without them there is no "Save page"
 *   update    takes the whole trace so far: what it adds to the last one is drawn, anything else starts anew;
 *             a line {"type": "error", "message"} in place of the end says why a run broke off
 */

import { el, string } from "../shared/dom.js";
import { loadPlotly } from "../shared/plotly.js";
import { followTheme } from "../shared/theme.js";
import { createChart } from "./chart.js";
import { createFooter } from "./footer.js";
import { inspectorNodes } from "./inspector.js";
import { createReader } from "./reader.js";
import { createReplay } from "./replay.js";
import { createStatus } from "./status.js";
import { createText } from "./text.js";
import { createWhatIf } from "./what_if.js";

const HINTS = [
  "Choose a token to see why it is there: point at it, tap it, or walk to it with Tab and the arrow keys.",
  "Here you will find what was drafted, the coin that decided, and what drafter (q), verifier (p) and target (π) thought.",
];

/** What the chart takes over from the style sheet. */
function coloursOf(host) {
  const style = getComputedStyle(host);
  const look = { font: style.fontFamily, scale: parseFloat(getComputedStyle(document.documentElement).fontSize) / 16 };
  for (const name of ["text", "muted", "strong", "accent", "bar", "line", "panel"]) {
    look[name] = style.getPropertyValue("--sv-chart-" + name).trim();
  }
  return look;
}

export function createTraceView(root, options = {}) {
  const { methods = {}, plotly = null, onSelect = () => {}, replay = false, onReplay = null, sources = null } = options;
  const host = root.matches(".specviz") ? root : root.querySelector(".specviz");
  const find = (selector) => host.querySelector(selector);
  const read = createReader();
  const panel = find(".sv-inspector");
  const status = createStatus(find(".sv-status"), replay ? "replaying …" : undefined);
  const chart = createChart(find(".sv-chart-panel"), () => coloursOf(host), (index) => text.pin(index));
  const text = createText(find(".sv-text"), { onShow: inspect, onPin: chart.mark, onSelect });
  const player = replay ? createReplay(find(".sv-replay"), { show: showSoFar }) : null;
  const footer = createFooter(find(".sv-footer"), { methods, onReplay, sources, yardstick: () => player?.yardstick() });
  const whatIf = createWhatIf(find(".sv-what-if"), find(".sv-text"), methods);
  let run;

  function reset() {
    run = {};
    find(".sv-empty").hidden = false;
    find(".sv-prompt").hidden = true;
    find(".sv-prompt").open = false;
    for (const part of [text, status, chart, player, footer, whatIf]) part?.reset();
  }

  function update(value) {
    const { anew, entries } = read(string(value));
    if (anew) reset();
    for (const entry of entries) {
      status.add(entry);
      player?.add(entry);
      footer.add(entry);
      whatIf.add(entry);
      if (entry?.type === "run") start(entry);
      else if (entry?.type === "round") chart.add(text.add(entry), entry, run);
    }
    footer.keep(string(value));
    if (entries.length === 0) return;
    if (entries.some((entry) => entry?.type !== "waiting")) find(".sv-empty").hidden = true;
    text.flush();
    status.show();
    whatIf.ready(text.items());
    player?.ready();
  }

  function start(entry) {
    run = entry;
    const prompt = string(entry.prompt);
    find(".sv-prompt").hidden = prompt === "";
    find(".sv-prompt-short").textContent = prompt.slice(0, 300);
    find(".sv-prompt-full").textContent = prompt;
  }

  /** Show the run only as far as a step of its replay has come. */
  function showSoFar({ tokens, drafts, entries }) {
    const items = text.items();
    text.showUpTo(tokens, drafts);
    status.reset();
    chart.reset();
    let first = 0;
    for (const entry of entries) {
      status.add(entry);
      if (entry.type === "round") chart.add(items.slice(first, (first += entry.tokens.length)), entry, run);
    }
    status.show();
    whatIf.ready(tokens === items.length ? items : []);
    chart.mark(text.pinned());
  }

  function inspect(item, pinned) {
    if (!item) {
      panel.replaceChildren(...HINTS.map((hint) => el("p", "sv-hint", hint)));
      return;
    }
    panel.replaceChildren(...inspectorNodes(item, run, methods));
    if (!pinned) return;
    const unpin = el("button", "sv-unpin", "unpin");
    unpin.type = "button";
    unpin.title = "Unpin this token (Escape)";
    panel.append(unpin);
  }

  host.addEventListener("keydown", (event) => {
    if (event.key === "Escape") text.clear();
  });
  panel.addEventListener("click", (event) => {
    if (event.target.closest(".sv-unpin")) text.unpin(); // which removes the button
  });
  find('[data-testid="toggle-drafts"]').addEventListener("change", (event) => {
    host.classList.toggle("sv-hide-drafts", !event.target.checked);
  });
  reset();
  followTheme(host, chart.schedule);
  new ResizeObserver(() => chart.schedule()).observe(chart.node);
  Promise.resolve(plotly).then(chart.use, () => chart.use(null));
  return { update, pin: text.pin, mark: text.mark };
}

/** Mount the component in gradio’s element. */
export function mount(element, { props, trigger, watch }) {
  const view = createTraceView(element, {
    methods: props.methods,
    plotly: loadPlotly(props.plotly_address),
    onSelect: (index, value) => trigger("select", { index, value }),
    replay: props.replay,
    onReplay: props.offers_replay ? () => trigger("play") : null,
    sources: props.sources,
  });
  watch("value", () => view.update(props.value));
  view.update(props.value);
}
