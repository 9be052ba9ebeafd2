/**
 * The view of a run: reads a "specviz-trace" (JSON lines) as it grows, and hands its entries to the parts of the view: figures,
 * text, replay, timeline, inspector, forks and footer.
 *
 * It knows the trace format and the DOM, but no model and no server. All text in a trace is untrusted, so nodes are built only
 * from text, never from markup.
 *
 * createTraceView(root, {methods, rules, onSelect, sources, latest, onEnd, ask, stop, form}) -> {update(value), answer(value), pin(index), mark(index, badge, words)}
 *   root      the element holding trace_view.html
 *   methods   method name -> {title, formula, sentence, score_label, threshold_label, range}; range is that of the
 *             what-if slider, [strict end, drafter's end]
 *   rules     custom rules that runs may have, as the server parsed them; the server is asked for others
 *   onSelect  called with (index, text) whenever a token is pinned
 *   latest    whether the inspector shows the latest token while none is chosen
 *   onEnd     called with the whole value once a run has ended
 *   ask, stop, answer   how forks are requested, ended and answered, see forks.js; without `ask` there are only recorded forks
 *   sources   addresses of the view's files, {template, styles, module}; without them there is no "Save page"
 *   form      the form around the view, from createForm; without one the view has a what-if slider and buttons to save
 *   update    takes the whole trace so far. If it extends the previous trace, the new lines are drawn; otherwise the view starts again.
 *             A value without a run, which says that a run waits or has failed, leaves the previous run on the page. Lines that
 *             traces do not have: {"type": "error", "message"} in place of the end says why a run broke off;
 *             {"type": "recorded", "title", "story", "plays"} describes a recorded run and says whether it plays by
 *             itself; {"type": "yardstick", "seconds_per_token", "machine"} has the speed of the verifier alone;
 *             {"type": "branches", "leniences": [{"lenience", "trace"}]} has forks at other leniences, with "" as trace if the text
 *             stays the same; {"type": "show", "index"} names the token to select first
 *   take      also returned, used in place of update: draws entries that are already read; whole() returns the trace so far, for saving
 */

import { el, isExamined, string } from "../shared/dom.js";
import { saveShareCard } from "../share_card/share_card.js";
import { followTheme } from "../shared/theme.js";
import { keepRules, readRule } from "../shared/rules.js";
import { createShelf } from "../shared/shelf.js";
import { createFigures } from "./figures.js";
import { createFooter } from "./footer.js";
import { createForm } from "./form.js";
import { createForks } from "./forks.js";
import { inspectorNodes } from "./inspector.js";
import { createReader } from "./reader.js";
import { createReplay } from "./replay.js";
import { createSheet } from "./sheet.js";
import { createText } from "./text.js";
import { createTimeline } from "./timeline.js";

const HINT = "Choose a token to see why it is there: point at it, tap it, or walk to it with Tab and the arrow keys.";

export function createTraceView(root, options = {}) {
  const { methods = {}, onSelect = () => {}, rules = [], sources = null, latest = true, onEnd = () => {}, ask = null, stop = () => {}, form = null } = options;
  const host = root.matches(".specviz") ? root : root.querySelector(".specviz");
  const find = (selector) => host.querySelector(selector);
  keepRules(rules);
  const read = createReader();
  const panel = find(".sv-inspector");
  const opened = new Set(innerHeight > 950 && innerWidth > 900 ? ["rule"] : []); // folds of the inspector
  const figures = createFigures(host, methods, { isNamed: form === null });
  const timeline = createTimeline(find(".sv-chart"), { onSeek: (second) => replay.seek(second), onPick: choose });
  const sheet = createSheet(panel, () => text.clear());
  const text = createText(find(".sv-text"), { scroller: find(".sv-page"), latest, onShow: inspect, onPin, onSelect });
  const replay = createReplay(host, { timeline, show: showSoFar });
  const footer = createFooter(host, { methods, sources, yardstick: replay.yardstick, shareCard, isShown: form === null });
  const forks = createForks(host, { text, methods, ask, stop, form, onWhole: () => replay.finish(), onItem: inspectBranch });
  form?.onSave(footer.save);
  const sayIfOther = () => form && figures.differs(form.differs(run, forks.shown()));
  form?.onChange(sayIfOther);
  form?.onAsk(sayIfOther);
  let run, rounds;
  let isNew = false; // whether a value has begun of which nothing is drawn yet
  let inspected = null; // what the inspector shows: arguments of show
  let pinning = text; // the text whose token is pinned, if one is

  function shareCard() {
    replay.finish();
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
    isNew ||= anew;
    if (entries.every((entry) => entry?.type === "waiting" || (isNew && entry?.type === "error")) && entries.length > 0) {
      for (const entry of entries) figures.add(entry);
      return figures.show();
    }
    if (isNew) reset();
    isNew = false;
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
    figures.show();
    text.flush();
    replay.ready();
    const ends = entries.some((entry) => entry?.type === "end");
    if (begins && ends) text.rest();
    forks.ready(text.items());
    text.follow(); // now that the parts around it have their heights
    if (ends) text.look(telling(text.items()));
    sayIfOther();
    const first = entries.find((entry) => entry?.type === "show");
    if (first) text.pin(first.index);
    if (entries.some((entry) => entry?.type === "recorded" && entry.plays === true)) replay.start();
    if (ends) onEnd(whole());
  }

  function start(entry) {
    run = entry;
    if (string(entry.rule)) readRule(entry.rule).then(() => inspected && show(...inspected));
    const prompt = string(entry.prompt);
    find(".sv-prompt").hidden = prompt === "" || form !== null;
    find(".sv-prompt-short").textContent = prompt.slice(0, 300);
    find(".sv-prompt-full").textContent = prompt;
    if (entry.continues) text.begin(entry.continues);
  }

  /** Show the run only as far as a step of its replay has come. */
  function showSoFar({ tokens, drafts, rounds: soFar, pending }) {
    if (soFar) forks.back(); // branches go on from a whole run
    text.showUpTo(tokens, drafts, pending);
    timeline.showUpTo(tokens);
    figures.show(soFar);
  }

  /** Pin a token, wherever the replay is. */
  function choose(index) {
    replay.reach(index);
    text.pin(index);
  }

  function onPin(index) {
    timeline.mark(index);
    if (index === null) return;
    sheet.open();
    const hidden = text.items()[index].node.getBoundingClientRect().bottom - panel.getBoundingClientRect().top;
    if (sheet.isOpen() && hidden > 0) scrollBy({ top: hidden + 24 });
  }

  function inspect(item, pinned) {
    const box = find(".sv-inspected");
    if (!item) {
      inspected = null;
      return box.replaceChildren(el("p", "sv-hint", HINT));
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

/** The index of a token whose reasons tell most: a rejection that a coin decided, else any rejection, else any examined token. */
function telling(items) {
  const isCloseCall = ({ token }) => token.draft && token.acceptance > 0 && token.acceptance < 1;
  const tests = [isCloseCall, ({ token }) => token.draft, ({ token }) => isExamined(token)];
  return tests.map((test) => items.findIndex(test)).find((index) => index >= 0) ?? 0;
}

/** Mount the component in gradio’s element; with `keeps` the runs it made come back with their addresses. */
export function mount(element, { props, trigger, watch }) {
  const shelf = props.keeps ? createShelf("specviz-run", "generate", () => shelf.get() && view.update(shelf.get())) : null;
  const form = props.form ? createForm((settings) => trigger("fill", settings)) : null;
  form?.onOpen((packed) => trigger("open", packed));
  const view = createTraceView(element, {
    methods: props.methods,
    sources: props.sources,
    onSelect: (index, value) => trigger("select", { index, value }),
    onEnd: shelf?.keep,
    ask: props.forks ? (wanted) => trigger("fork", wanted) : null,
    stop: (written) => trigger("unfork", written),
    form,
  });
  watch("value", () => shelf?.takes(string(props.value)) !== false && view.update(props.value));
  watch("branch", () => view.answer(props.branch));
  view.update(shelf?.get() || props.value);
}
