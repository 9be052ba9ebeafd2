/**
 * The stage of a run: reads a "specviz-trace" (JSON lines) as it grows, and hands its entries to the parts of the view: the
 * round, figures, text, timeline, inspector, forks and footer.
 *
 * It knows the trace format and the DOM; it knows no model, no server and no page around it. All text in a trace is
 * untrusted, so nodes are only ever built from text, never from markup.
 *
 * createTraceView(root, {methods, rules, onSelect, sources, latest, onEnd, ask, stop}) -> {update(value), answer(value), pin(index), mark(index, badge, words)}
 *   root      the element holding trace_view.html
 *   methods   method name -> {title, formula, sentence, score_label, threshold_label, range}; range is what the
 *             what-if slider offers, [strict end, drafter's end]
 *   rules     rules of people's own that runs may have, as the server read them; others it is asked for
 *   onSelect  called with (index, text) whenever a token is pinned
 *   latest    whether the inspector shows the latest token while none is chosen
 *   onEnd     called with the whole value once a run has ended
 *   ask, stop, answer   how forks are asked for, ended and answered, see forks; without `ask` there are those recorded
 *   sources   where the view's own files are, {template, styles, module}; without them there is no "Save page"
 *   update    takes the whole trace so far: what it adds to the last one is drawn, anything else starts anew. Beside the
 *             trace's own lines there may be {"type": "error", "message"} in place of the end, which says why a run broke
 *             off; {"type": "recorded", "title", "story", "plays"}, what a recorded run shows, and whether it plays by
 *             itself; {"type": "yardstick", "seconds_per_token", "machine"}, the verifier's own speed;
 *             {"type": "branches", "leniences": [{"lenience", "trace"}]}, forks at other leniences, whose trace is "" where the text
 *             stays the same; and {"type": "show", "index"}, a token to begin with
 *   take      in place of update, also returned: draws entries that somebody else has read; whole() gives the trace so far, for saving
 */

import { el, string } from "../shared/dom.js";
import { saveShareCard } from "../share_card/share_card.js";
import { followTheme } from "../shared/theme.js";
import { keepRules, readRule } from "../shared/rules.js";
import { createFigures } from "./figures.js";
import { createFooter } from "./footer.js";
import { createForks } from "./forks.js";
import { inspectorNodes } from "./inspector.js";
import { createReader } from "./reader.js";
import { createReplay } from "./replay.js";
import { createSheet } from "./sheet.js";
import { createText } from "./text.js";
import { createTimeline } from "./timeline.js";

const HINTS = [
  "Choose a token to see why it is there: point at it, tap it, or walk to it with Tab and the arrow keys.",
  "Here you will find the chances that drafter and verifier gave it, and the coin that decided.",
];
const KEPT = "specviz-run"; // the name under which a page keeps its last run

export function createTraceView(root, options = {}) {
  const { methods = {}, onSelect = () => {}, rules = [], sources = null, latest = true, onEnd = () => {}, ask = null, stop = () => {} } = options;
  const host = root.matches(".specviz") ? root : root.querySelector(".specviz");
  const find = (selector) => host.querySelector(selector);
  keepRules(rules);
  const read = createReader();
  const panel = find(".sv-inspector");
  const opened = new Set(); // folds of the inspector
  const figures = createFigures(host, methods);
  const timeline = createTimeline(find(".sv-chart"), { onSeek: (second) => replay.seek(second), onPick: choose });
  const sheet = createSheet(panel, () => text.clear());
  const text = createText(find(".sv-text"), { scroller: find(".sv-page"), latest, onShow: inspect, onPin, onSelect });
  const replay = createReplay(host, { timeline, show: showSoFar, onCard: choose });
  const footer = createFooter(find(".sv-footer"), { methods, sources, yardstick: replay.yardstick, shareCard });
  const forks = createForks(host, { text, methods, ask, stop, onWhole: () => replay.finish(), onItem: inspectBranch });
  let run, rounds;
  let inspected = null; // what the inspector shows: arguments of show
  let pinning = text; // the text whose token is pinned, if one is

  function shareCard() {
    const dark = host.dataset.theme === "dark";
    return saveShareCard(run, rounds, figures.told(), { dark, methods, host });
  }

  function reset() {
    rounds = [];
    run = {};
    find(".sv-empty").hidden = false;
    find(".sv-prompt").hidden = true;
    find(".sv-prompt").open = false;
    for (const part of [timeline, text, figures, replay, footer, forks]) part.reset();
  }

  function update(value) {
    const { anew, entries } = read(string(value));
    if (anew) reset();
    take(entries, () => string(value));
  }

  function take(entries, whole) {
    footer.keep(whole);
    if (entries.length === 0) return;
    const begins = text.items().length === 0;
    for (const entry of entries) {
      figures.add(entry);
      replay.add(entry);
      footer.add(entry);
      forks.add(entry);
      if (entry?.type === "run") start(entry);
      else if (entry?.type === "round") {
        rounds.push(entry);
        timeline.add(text.add(entry), entry, run);
      } else if (entry?.type === "end") text.end(string(entry.tail));
    }
    if (entries.some((entry) => entry?.type !== "waiting")) find(".sv-empty").hidden = true;
    text.flush();
    figures.show();
    replay.ready();
    if (begins && entries.some((entry) => entry?.type === "end")) text.rest();
    forks.ready(text.items());
    const first = entries.find((entry) => entry?.type === "show");
    if (first) text.pin(first.index);
    if (entries.some((entry) => entry?.type === "recorded" && entry.plays === true)) replay.start();
    if (entries.some((entry) => entry?.type === "end")) onEnd(whole());
  }

  function start(entry) {
    run = entry;
    if (string(entry.rule)) readRule(entry.rule).then(() => inspected && show(...inspected));
    const prompt = string(entry.prompt);
    find(".sv-prompt").hidden = prompt === "";
    find(".sv-prompt-short").textContent = prompt.slice(0, 300);
    find(".sv-prompt-full").textContent = prompt;
    if (entry.continues) text.begin(entry.continues);
  }

  /** Show the run only as far as a step of its replay has come. */
  function showSoFar({ tokens, drafts, entries, words }) {
    text.showUpTo(tokens, drafts);
    timeline.showUpTo(tokens);
    figures.rewind();
    figures.say(words);
    for (const entry of entries) figures.add(entry);
    figures.show();
  }

  /** Pin a token, wherever the replay is. */
  function choose(index) {
    replay.reach(index);
    text.pin(index);
  }

  function onPin(index) {
    timeline.mark(index);
    replay.lookAt(text.items()[index] ?? null);
    if (index === null) return;
    sheet.open();
    const hidden = text.items()[index].node.getBoundingClientRect().bottom - panel.getBoundingClientRect().top;
    if (sheet.isOpen() && hidden > 0) scrollBy({ top: hidden + 24 });
  }

  function inspect(item, pinned) {
    const box = find(".sv-inspected");
    if (!item) {
      inspected = null;
      return box.replaceChildren(...HINTS.map((hint) => el("p", "sv-hint", hint)));
    }
    if (isTaken(text, pinned)) show(item, pinned, run, null);
  }

  function inspectBranch(item, pinned, branch) {
    if (!isTaken(branch.text, pinned)) return;
    show(item, pinned, branch.run, branch);
    if (pinned) sheet.open();
  }

  /** Whether the inspector is this text's: not while a token of another one is pinned, unless one of this is now. */
  function isTaken(one, pinned) {
    const last = pinning;
    if (!pinned && last !== one && last.pinned() !== null) return false;
    pinning = one;
    if (pinned && last !== one) last.clear();
    return true;
  }

  function show(item, pinned, of, branch) {
    inspected = [item, pinned, of, branch];
    const box = find(".sv-inspected");
    panel.classList.toggle("is-pinned", pinned);
    const take = forks.take && ((token) => {
      forks.take(item, token, branch);
      sheet.close();
    });
    box.replaceChildren(...inspectorNodes(item, of, methods, opened, take));
    if (!pinned) return;
    const unpin = el("button", "sv-unpin", "unpin");
    unpin.type = "button";
    unpin.title = "Unpin this token (Escape)";
    box.append(unpin);
  }

  host.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !sheet.isOpen() && !forks.back()) text.clear();
  });
  panel.addEventListener("click", (event) => {
    if (event.target.closest(".sv-unpin")) pinning.unpin(); // which removes the button
  });
  find('[data-testid="toggle-drafts"]')?.addEventListener("change", (event) => {
    host.classList.toggle("sv-show-drafts", event.target.checked);
  });
  reset();
  followTheme(host);
  return { update, take, answer: forks.answer, pin: choose, mark: text.mark };
}

/** Mount the component in gradio’s element; with `keeps` a page that is loaded again still has the run it made last. */
export function mount(element, { props, trigger, watch }) {
  const address = () => location.pathname + location.search;
  const keep = (value) => {
    try {
      sessionStorage.setItem(KEPT, JSON.stringify({ address: address(), value }));
    } catch {
      // A run too large to keep, or a browser that keeps nothing: then it is not there after a reload.
    }
  };
  const view = createTraceView(element, {
    methods: props.methods,
    sources: props.sources,
    onSelect: (index, value) => trigger("select", { index, value }),
    onEnd: props.keeps ? keep : undefined,
    ask: props.forks ? (wanted) => trigger("fork", wanted) : null,
    stop: (written) => trigger("unfork", written),
  });
  const kept = props.keeps ? JSON.parse(sessionStorage.getItem(KEPT) ?? "null") : null;
  watch("value", () => view.update(props.value));
  watch("branch", () => view.answer(props.branch));
  view.update(kept?.address === address() ? kept.value : props.value);
}
