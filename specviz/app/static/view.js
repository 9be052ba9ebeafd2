/**
 * The trace view: draws a "specviz-trace" (JSON lines) as coloured tokens, figures, an inspector and a chart.
 *
 * It knows the trace format and the DOM, and Plotly for the chart; it knows no model, no server and no page
 * around it. All text in a trace is untrusted, so nodes are only ever built from text, never from markup.
 *
 * createTraceView(root, {methods, plotly, onSelect, replay, onReplay, sources}) -> {update(value), pin(index), mark(index, badge, words)}
 *   root      the element holding template.html
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

const HINTS = [
  "Choose a token to see why it is there: point at it, tap it, or walk to it with Tab and the arrow keys.",
  "Here you will find what was drafted, the coin that decided, and what drafter (q), verifier (p) and target (π) thought.",
];

function createTraceView(root, options = {}) {
  const { methods = {}, plotly = null, onSelect = () => {}, replay = false, onReplay = null, sources = null } = options;
  const host = root.matches(".specviz") ? root : root.querySelector(".specviz");
  const find = (selector) => host.querySelector(selector);
  const text = find(".sv-text");
  const panel = find(".sv-inspector");
  const status = createStatus(find(".sv-status"), replay ? "replaying …" : undefined);
  const chart = createChart(find(".sv-chart-panel"), colours, pin);
  const read = createReader();
  const player = replay ? createReplay(find(".sv-replay"), { show: showSoFar }) : null;
  const footer = createFooter(find(".sv-footer"), { methods, onReplay, sources, yardstick: () => player?.yardstick() });
  const whatIf = createWhatIf(find(".sv-what-if"), text, methods);
  let run, items, shown, pinned, tabStop;
  let visible; // how many tokens are on the page: all, unless a replay has not come to them
  let following = true; // whether the text scrolls along with what is written

  function reset() {
    run = {};
    items = [];
    shown = pinned = tabStop = null;
    visible = 0;
    following = true;
    text.replaceChildren();
    find(".sv-empty").hidden = false;
    find(".sv-prompt").hidden = true;
    find(".sv-prompt").open = false;
    status.reset();
    chart.reset();
    player?.reset();
    footer.reset();
    whatIf.reset();
    inspect(null);
  }

  function update(value) {
    const { anew, entries } = read(string(value));
    if (anew) reset();
    const added = document.createDocumentFragment();
    for (const entry of entries) {
      status.add(entry);
      player?.add(entry);
      footer.add(entry);
      whatIf.add(entry);
      if (entry?.type === "run") start(entry);
      else if (entry?.type === "round") added.append(addRound(entry));
    }
    footer.keep(string(value));
    if (entries.length === 0) return;
    if (entries.some((entry) => entry?.type !== "waiting")) find(".sv-empty").hidden = true;
    text.append(added);
    if (tabStop === null && items.length > 0) setTabStop(0);
    if (following) text.scrollTop = text.scrollHeight;
    status.show();
    whatIf.ready(items);
    player?.ready();
  }

  /** Show the run only as far as a step of its replay has come. Later tokens keep their nodes, out of sight. */
  function showSoFar({ tokens, drafts, entries }) {
    visible = tokens;
    for (const { node, index } of items) node.hidden = index >= tokens;
    for (const node of text.querySelectorAll(".sv-draft")) node.hidden = Number(node.dataset.for) >= drafts;
    status.reset();
    chart.reset();
    let first = 0;
    for (const entry of entries) {
      status.add(entry);
      if (entry.type !== "round") continue;
      chart.add(items.slice(first, (first += entry.tokens.length)), entry, run);
    }
    status.show();
    whatIf.ready(tokens === items.length ? items : []);
    if (pinned !== null && pinned >= tokens) setPinned(null);
    if (pinned === null) inspect(tokens > 0 ? tokens - 1 : null);
    chart.mark(pinned);
    if (tokens > 0) setTabStop(Math.min(tabStop ?? 0, tokens - 1));
    if (following) text.scrollTop = text.scrollHeight;
  }

  function start(entry) {
    run = entry;
    const prompt = string(entry.prompt);
    find(".sv-prompt").hidden = prompt === "";
    find(".sv-prompt-short").textContent = prompt.slice(0, 300);
    find(".sv-prompt-full").textContent = prompt;
  }

  function addRound(round) {
    const first = items.length;
    const fresh = round.tokens.map((token, place) => ({ token, round, place, first, index: first + place }));
    items.push(...fresh);
    visible = items.length;
    chart.add(fresh, round, run);
    return roundNode(fresh);
  }

  // ---- selection: a pinned token stays in the inspector, otherwise the last one pointed at does

  function inspect(index) {
    const previous = items[shown];
    previous?.node.classList.remove("is-shown");
    previous?.group.classList.remove("is-active");
    shown = index;
    const item = items[index];
    if (!item) {
      panel.replaceChildren(...HINTS.map((hint) => el("p", "sv-hint", hint)));
      return;
    }
    item.node.classList.add("is-shown");
    item.group.classList.add("is-active");
    panel.replaceChildren(...inspectorNodes(item, run, methods));
    if (pinned !== index) return;
    const unpin = el("button", "sv-unpin", "unpin");
    unpin.type = "button";
    unpin.title = "Unpin this token (Escape)";
    panel.append(unpin);
  }

  function setPinned(index) {
    for (const [at, on] of [[pinned, false], [index, true]]) {
      items[at]?.node.classList.toggle("is-pinned", on);
      items[at]?.node.setAttribute("aria-selected", String(on));
    }
    pinned = index;
    chart.mark(index);
  }

  function pin(index) {
    if (!items[index]) return;
    setPinned(index);
    inspect(index);
    setTabStop(index);
    reveal(items[index].node);
    onSelect(index, items[index].token.text);
  }

  /** Put a badge on a token, and words for those who cannot see it. */
  function mark(index, badge, words) {
    if (items[index]) badgeToken(items[index].node, badge, words);
  }

  function dismiss() {
    setPinned(null);
    inspect(null);
  }

  /** Scroll the text box, and only it, until the node is in sight. */
  function reveal(node) {
    const box = text.getBoundingClientRect();
    const spot = node.getBoundingClientRect();
    if (spot.top < box.top) text.scrollTop -= box.top - spot.top + 8;
    else if (spot.bottom > box.bottom) text.scrollTop += spot.bottom - box.bottom + 8;
  }

  function setTabStop(index) {
    if (items[tabStop]) items[tabStop].node.tabIndex = -1;
    tabStop = index;
    items[index].node.tabIndex = 0;
  }

  function moveTo(index) {
    const item = items[Math.min(Math.max(index, 0), visible - 1)];
    if (!item) return;
    const wasPinned = pinned !== null;
    item.node.focus();
    if (wasPinned && pinned !== item.index) pin(item.index); // the pin travels with the arrows
  }

  /** The index of the token that an event happened on, or null. */
  function indexAt(event) {
    const node = event.target.closest(".sv-token, .sv-draft");
    return node && text.contains(node) ? Number(node.dataset.index ?? node.dataset.for) : null;
  }

  function onKey(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const at = tabStop ?? 0;
    const { first, round } = items[at] ?? {};
    const goals = { ArrowLeft: at - 1, ArrowRight: at + 1, ArrowUp: items[first - 1]?.first ?? 0,
      ArrowDown: first + round?.tokens.length, Home: 0, End: visible - 1 };
    if (Object.hasOwn(goals, event.key)) moveTo(goals[event.key]);
    else if (event.key === "Enter" || event.key === " ") toggle(at);
    else return;
    event.preventDefault();
  }

  function toggle(index) {
    if (index !== pinned) return pin(index);
    setPinned(null);
    inspect(index);
  }

  function listen() {
    text.addEventListener("pointerover", (event) => {
      const index = indexAt(event);
      if (event.pointerType === "mouse" && index !== null && pinned === null && index !== shown) inspect(index);
    });
    text.addEventListener("click", (event) => {
      const index = indexAt(event);
      if (index !== null) toggle(index);
    });
    text.addEventListener("focusin", (event) => {
      const index = indexAt(event);
      if (index === null) return;
      setTabStop(index);
      if (pinned === null) inspect(index);
    });
    text.addEventListener("keydown", onKey);
    text.addEventListener("scroll", () => {
      following = text.scrollHeight - text.scrollTop - text.clientHeight < 24;
    });
    host.addEventListener("keydown", (event) => {
      if (event.key === "Escape") dismiss();
    });
    panel.addEventListener("click", (event) => {
      if (!event.target.closest(".sv-unpin")) return;
      items[pinned].node.focus({ preventScroll: true }); // the button is about to go
      toggle(pinned);
    });
    find('[data-testid="toggle-drafts"]').addEventListener("change", (event) => {
      host.classList.toggle("sv-hide-drafts", !event.target.checked);
    });
  }

  // ---- theme

  /** What the chart takes over from the style sheet. */
  function colours() {
    const style = getComputedStyle(host);
    const look = { font: style.fontFamily, scale: parseFloat(getComputedStyle(document.documentElement).fontSize) / 16 };
    for (const name of ["text", "muted", "strong", "accent", "bar", "line", "panel"]) {
      look[name] = style.getPropertyValue("--sv-chart-" + name).trim();
    }
    return look;
  }

  reset();
  listen();
  followTheme(host, chart.schedule);
  new ResizeObserver(() => chart.schedule()).observe(chart.node);
  Promise.resolve(plotly).then(chart.use, () => chart.use(null));
  return { update, pin, mark };
}
