/**
 * The trace view: draws a "specviz-trace" (JSON lines) as coloured tokens, figures, an inspector and a chart.
 *
 * It knows the trace format and the DOM, and Plotly for the chart; it knows no model, no server and no page
 * around it. All text in a trace is untrusted, so nodes are only ever built from text, never from markup.
 *
 * createTraceView(root, {methods, plotly, onSelect}) -> {update(value)}
 *   root      the element holding template.html
 *   methods   method name -> {title, formula, sentence, score_label, threshold_label}
 *   plotly    Plotly, or a promise of it; null or a promise of null means that there is no chart
 *   onSelect  called with (index, text) whenever a token is pinned
 *   update    takes the whole trace so far: what it adds to the last one is drawn, anything else starts anew;
 *             a line {"type": "error", "message"} in place of the end says why a run broke off
 */
const createTraceView = (() => {
  "use strict";

  const DASH = "–";
  const WINDOW = 16; // examined proposals in the rolling acceptance
  const ANNOUNCE_EVERY = 5000; // ms between two spoken updates of the figures
  const STOP_WORDS = { eos: "ended by itself", length: "reached the token limit", context: "context is full",
    cancelled: "stopped" };
  const HINTS = [
    "Choose a token to see why it is there: point at it, tap it, or walk to it with Tab and the arrow keys.",
    "Here you will find what was drafted, the coin that decided, and what drafter (q), verifier (p) and target (π) thought.",
  ];

  // ---------------------------------------------------------------- words and numbers

  /** A new element; strings among the children become text nodes, what is missing is left out. */
  function el(tag, className, ...children) {
    const node = document.createElement(tag);
    if (className) node.className = className;
    node.append(...children.filter((child) => child || child === ""));
    return node;
  }

  /** The value if it is a finite number, else the fallback. */
  const finite = (value, fallback = 0) => (Number.isFinite(value) ? value : fallback);
  const list = (value) => (Array.isArray(value) ? value : []);
  const string = (value) => (typeof value === "string" ? value : "");
  const count = (n, noun) => n + " " + noun + (n === 1 ? "" : "s");
  const isExamined = (token) => Number.isFinite(token.acceptance) && Number.isFinite(token.coin);
  const signed = (value, text) => (value < 0 ? "−" : "") + text;

  /** A probability or a score with about two significant places, as people write it. */
  function number(value) {
    if (!Number.isFinite(value)) return DASH;
    const size = Math.abs(value);
    if (size === 0) return "0";
    if (size < 0.0001) return signed(value, size.toExponential(1));
    return signed(value, size < 0.1 ? size.toPrecision(size < 0.001 ? 1 : 2) : size.toFixed(2));
  }

  /** Two numbers that are compared, with as many places as it takes to tell them apart. */
  function compared(a, b) {
    let texts = [number(a), number(b)];
    for (let places = 3; a !== b && texts[0] === texts[1] && places < 10; places += 1) {
      texts = [a, b].map((value) => (Number.isFinite(value) ? signed(value, Math.abs(value).toFixed(places)) : DASH));
    }
    return texts;
  }

  /** Text with its white space made visible. */
  const visible = (text) =>
    string(text).replace(/ /g, "␣").replace(/\n/g, "⏎").replace(/\r/g, "␍").replace(/\t/g, "⇥");

  /** How to name a token, a draft or a candidate on its own; a bare piece of a character goes by its number. */
  const nameOf = (token) => visible(token?.label || token?.text) || "#" + (token?.id ?? "?");
  const quoted = (token) => el("bdi", "sv-name", nameOf(token));

  /** A token as a screen reader should say it. */
  function spoken(token) {
    const text = string(token.label || token.text);
    if (text === "") return "part of a character";
    return text.trim() || (text.includes("\n") ? "line break" : "space");
  }

  // ---------------------------------------------------------------- reading

  const isToken = (token) => token !== null && typeof token === "object" && typeof token.text === "string";

  /** One line of a trace as an object, or null if it cannot be one. */
  function parse(line) {
    try {
      const entry = JSON.parse(line);
      if (entry === null || typeof entry !== "object") return null;
      const sound = entry.type !== "round" || (Array.isArray(entry.tokens) && entry.tokens.every(isToken));
      return sound ? entry : null;
    } catch {
      return null;
    }
  }

  /** A reader that remembers what it has read: read(value) gives the new entries and whether to start anew. */
  function createReader() {
    let consumed = "";
    return (value) => {
      const anew = !value.startsWith(consumed);
      const start = anew ? 0 : consumed.length;
      const end = value.lastIndexOf("\n") + 1;
      const lines = value.slice(start, Math.max(start, end)).split("\n").filter((line) => line.trim() !== "");
      consumed = value.slice(0, end);
      return { anew, entries: lines.map(parse) };
    };
  }

  // ---------------------------------------------------------------- figures

  /** The status line: counts rounds as they come and shows the figures derived from them. */
  function createStatus(section) {
    const cell = (name) => section.querySelector('[data-figure="' + name + '"]');
    const warning = section.querySelector(".sv-warning");
    const failure = section.querySelector(".sv-failure");
    const live = section.querySelector(".sv-spoken");
    let sums, run, end, error, broken, timer;

    function reset() {
      sums = { rounds: 0, tokens: 0, examined: 0, accepted: 0, seconds: 0 };
      run = end = error = null;
      broken = 0;
      clearTimeout(timer);
      timer = null;
      live.textContent = "";
      show();
    }

    function add(entry) {
      if (entry === null) broken += 1;
      else if (entry.type === "run") run = entry;
      else if (entry.type === "end") end = entry;
      else if (entry.type === "error") error = entry;
      else if (entry.type === "round") {
        sums.rounds += 1;
        sums.tokens += entry.tokens.length;
        for (const key of ["examined", "accepted", "seconds"]) sums[key] += finite(entry[key]);
      }
    }

    function figures() {
      const { rounds, tokens, examined, accepted } = sums;
      const seconds = sums.seconds + finite(end?.prefill_seconds);
      const verified = run?.method !== "drafter_only";
      return {
        acceptance: examined > 0 ? Math.round((100 * accepted) / examined) + "%" : DASH,
        efficiency: rounds > 0 && verified ? (tokens / rounds).toFixed(1) : DASH,
        calls: rounds > 0 ? String(finite(end?.verifier_calls, verified ? rounds : 0)) : DASH,
        tokens: rounds > 0 ? String(tokens) : DASH,
        speed: rounds > 0 && seconds > 0 ? (tokens / seconds).toFixed(1) : DASH,
      };
    }

    function show() {
      const texts = figures();
      for (const [name, text] of Object.entries(texts)) cell(name).querySelector("dd").textContent = text;
      if (texts.efficiency !== DASH) {
        cell("efficiency").querySelector("dd").append(el("small", "", " tokens per verifier call"));
      }
      cell("stop").textContent = error ? "did not work" : end ? STOP_WORDS[end.stop_reason] || "ended" : run ? "running …" : "";
      cell("stop").classList.toggle("is-done", end !== null || error !== null);
      failure.hidden = error === null;
      failure.textContent = string(error?.message);
      warning.hidden = broken === 0;
      warning.textContent = count(broken, "line") + " of this trace could not be read and " +
        (broken === 1 ? "was" : "were") + " left out.";
      if (end) announce();
      else if (run && !error && timer === null) timer = setTimeout(announce, ANNOUNCE_EVERY);
    }

    /** What a screen reader hears: at the end at once, before it only now and then. */
    function announce() {
      clearTimeout(timer);
      timer = null;
      const texts = figures();
      live.textContent = count(sums.tokens, "token") +
        (texts.acceptance === DASH ? "" : ", acceptance rate " + texts.acceptance) +
        (texts.efficiency === DASH ? "" : ", " + texts.efficiency + " tokens per verifier call") +
        (end ? ", " + cell("stop").textContent + "." : ".");
    }

    return { reset, add, show };
  }

  // ---------------------------------------------------------------- text

  /** The token's node: its own text and nothing else, so that the nodes together read as the trace's text. */
  function tokenNode(item) {
    const { token, index } = item;
    const node = el("span", "sv-token " + (token.accepted ? "accepted" : "resampled"));
    node.dataset.index = String(index);
    node.dataset.testid = "token";
    node.tabIndex = -1;
    node.setAttribute("role", "option");
    node.setAttribute("aria-selected", "false");
    node.setAttribute("aria-label", spoken(token) + ", " + spokenVerdict(token));
    if (token.special) {
      node.classList.add("special");
      node.dataset.label = visible(token.label) || "#" + token.id;
    } else if (token.text === "") {
      node.classList.add("partial");
    }
    token.text.split("\n").forEach((piece, at) => {
      // The mark is drawn by the style sheet, before the break that stays in the text.
      if (at > 0) node.append(el("i", "sv-newline"), "\n");
      node.append(piece);
    });
    return node;
  }

  function spokenVerdict(token) {
    if (token.accepted) return isExamined(token) ? "accepted" : "drafted";
    return token.draft ? "resampled, rejected draft " + spoken(token.draft) : "written by the verifier";
  }

  /** The rejected draft, struck through, before what replaced it. */
  function draftNode(item) {
    const text = string(item.token.draft.text);
    const node = el("del", "sv-draft", text.trim() === "" ? nameOf(item.token.draft) : visible(text.trim()));
    node.dataset.for = String(item.index);
    node.dataset.testid = "draft";
    node.setAttribute("aria-hidden", "true");
    return node;
  }

  /** The nodes of one round, wrapped so that a round can be marked as one. */
  function roundNode(items) {
    const node = el("span", "sv-round");
    node.setAttribute("role", "presentation");
    for (const item of items) {
      if (item.token.draft) node.append(el("wbr"), draftNode(item)); // a line may break before the pair, not in it
      item.node = tokenNode(item);
      item.group = node;
      node.append(item.node);
    }
    return node;
  }

  // ---------------------------------------------------------------- inspector

  /** The verdict on a token, in words. */
  function verdict(item, run) {
    const { token } = item;
    if (run.method === "drafter_only") return ["Written by the drafter."];
    if (!token.accepted && !token.draft) return ["Written by the verifier."];
    if (token.accepted) return ["Drafted and accepted."];
    return ["Rejected ", quoted(token.draft), "; resampled by the verifier as ", quoted(token), "."];
  }

  /** The rule's own numbers, in one sentence. */
  function ruleSentence(token, run, method) {
    if (run.method === "drafter_only") return "Nothing was examined: every draft is kept and the verifier never runs.";
    if (run.method === "verifier_only") return "Nothing was examined: the verifier writes every token itself.";
    if (run.method === "speed") return "No deferral rule: the two probabilities of the draft decide.";
    const rule = token.rule;
    if (!rule || !Number.isFinite(rule.score) || !Number.isFinite(rule.threshold)) return "The rule left no numbers here.";
    const [score, threshold] = compared(rule.score, rule.threshold);
    return (rule.trusted ? "Trusted: " : "Not trusted: ") + (method.score_label || "score") + " = " + score +
      (rule.trusted ? " ≥ " : " < ") + (method.threshold_label || "threshold") + " = " + threshold + ".";
  }

  /** How the acceptance probability came about, with the numbers of the draft that was examined. */
  function acceptanceSentence(token, run) {
    const draft = token.draft || token;
    const strict = run.method === "speed";
    const formula = strict ? "min(1, p / ((1 − α) q))" : "min(1, π / q)";
    const numbers = strict
      ? number(draft.p) + " / (" + number(1 - finite(run.lenience)) + " × " + number(draft.q) + ")"
      : number(draft.pi) + " / " + number(draft.q);
    return "acceptance = " + formula + " = min(1, " + numbers + ") = " + number(token.acceptance);
  }

  /** The acceptance probability as a bar from 0 to 1, and the coin as a tick on it. */
  function gauge(token) {
    const [coin, acceptance] = compared(token.coin, token.acceptance);
    const passed = token.coin < token.acceptance;
    const words = "Coin " + coin + (passed ? " < " : " ≥ ") + acceptance + ": " + (passed ? "accepted" : "rejected");
    const fill = el("span", "sv-gauge-fill");
    fill.style.width = 100 * finite(token.acceptance) + "%";
    const tick = el("span", "sv-gauge-coin");
    tick.style.left = 100 * finite(token.coin) + "%";
    const scale = el("div", "sv-scale", el("span", "", "0"), el("span", "", "acceptance probability"), el("span", "", "1"));
    const picture = el("div", "", el("div", "sv-gauge " + (passed ? "passed" : "failed"), fill, tick), scale);
    picture.setAttribute("aria-hidden", "true");
    return el("div", "sv-coin", el("p", "sv-coin-words", words), picture);
  }

  /** What was drafted in the token's round: kept, rejected, or never examined. */
  function proposals(item) {
    const { round, place } = item;
    const drafted = list(round.proposals);
    if (drafted.length === 0) return null;
    const strip = el("p", "sv-proposals", el("span", "sv-caption", "drafted "));
    drafted.forEach((proposal, at) => {
      const fate = at < round.accepted ? "kept" : at < round.examined ? "rejected" : "unseen";
      const chip = el(fate === "rejected" ? "del" : "span", "sv-chip " + fate, el("bdi", "", nameOf(proposal)));
      chip.title = { kept: "accepted", rejected: "rejected", unseen: "never examined" }[fate];
      if (at === place) chip.classList.add("is-here");
      strip.append(chip);
    });
    return strip;
  }

  /** q, p and pi of the emitted token and of the rejected draft. */
  function probabilities(token) {
    const row = (word, who) =>
      el("tr", "", el("th", "", word + " ", quoted(who)), ...["q", "p", "pi"].map((key) => el("td", "", number(who[key]))));
    const head = el("tr", "", el("th", ""), el("th", "", "q"), el("th", "", "p"), el("th", "", "π"));
    return el("table", "sv-numbers", el("thead", "", head),
      el("tbody", "", row("emitted", token), token.draft ? row("rejected", token.draft) : null));
  }

  /** One model's most likely tokens as bars; the emitted token and the rejected draft are marked in it. */
  function topColumn(token, key, title) {
    const column = el("div", "sv-top sv-top-" + key, el("h4", "", title));
    const found = token.top[key];
    if (!Array.isArray(found)) {
      column.append(el("p", "sv-caption", "did not run"));
      return column;
    }
    const rows = found.filter((entry) => entry !== null && typeof entry === "object");
    for (const other of [token, token.draft]) {
      const listed = !other || rows.some((entry) => entry.id === other.id);
      if (!listed && Number.isFinite(other[key])) {
        rows.push({ id: other.id, text: other.text, label: other.label, probability: other[key], beyond: true });
      }
    }
    for (const entry of rows) {
      const bar = el("span", "sv-bar");
      bar.style.width = 100 * finite(entry.probability) + "%";
      const draft = entry.id === token.draft?.id;
      const row = el("div", "sv-row", bar, el(draft ? "del" : "span", "sv-row-name", el("bdi", "", nameOf(entry))),
        el("span", "sv-row-number", number(entry.probability)));
      row.title = nameOf(entry);
      row.classList.toggle("is-emitted", entry.id === token.id);
      row.classList.toggle("is-draft", draft);
      row.classList.toggle("is-beyond", entry.beyond === true);
      column.append(row);
    }
    return column;
  }

  function topList(token) {
    if (!token.top || typeof token.top !== "object") {
      return el("p", "sv-caption sv-no-top", "Inspection was off for this run.");
    }
    return el("div", "sv-tops", topColumn(token, "q", "q · drafter"), topColumn(token, "p", "p · verifier"),
      topColumn(token, "pi", "π · target"));
  }

  /** The whole inspector for one token, as a list of nodes. */
  function inspectorNodes(item, run, method) {
    const { token, round, index } = item;
    const examined = isExamined(token);
    const place = ["token " + (index + 1), "round " + (finite(round.index) + 1), "position " + (token.position ?? DASH),
      "id " + (token.id ?? DASH)].join(" · ");
    const rule = el("div", "sv-rule",
      method.title && el("p", "sv-caption", method.title + (method.formula ? ": " + method.formula : "")),
      el("p", "sv-rule-words", ruleSentence(token, run, method)),
      examined && el("p", "sv-caption", acceptanceSentence(token, run)));
    rule.title = method.sentence || "";
    return [
      el("h3", "sv-token-name " + (token.accepted ? "accepted" : "resampled"), quoted(token)),
      el("p", "sv-caption sv-place", place),
      el("p", "sv-verdict", ...verdict(item, run)),
      examined && gauge(token),
      rule,
      proposals(item),
      probabilities(token),
      topList(token),
    ].filter(Boolean);
  }

  // ---------------------------------------------------------------- chart

  /** The live chart. It collects points at once and draws when it can: Plotly may come late or never. */
  function createChart(panel, colours, onPoint) {
    const node = panel.querySelector(".sv-chart");
    const note = panel.querySelector(".sv-chart-note");
    const legend = panel.querySelector(".sv-chart-legend");
    let Plotly = null;
    let x, cumulative, rolling, bars, outcomes, accepted, marked, reason;
    let scheduled = false;
    let wired = false;
    let revision = 0;
    let drawn = 0; // when the last drawing ended, in ms
    let pause = 0; // how long to leave the browser alone after it

    function reset() {
      [x, cumulative, rolling, outcomes] = [[], [], [], []];
      bars = { x: [], y: [], width: [], customdata: [] };
      accepted = 0;
      marked = null;
      reason = "";
      schedule();
    }

    function add(items, round, run) {
      for (const { token, index } of items) {
        const examined = isExamined(token);
        if (examined) {
          outcomes.push(token.accepted ? 1 : 0);
          accepted += token.accepted ? 1 : 0;
        }
        const recent = outcomes.slice(-WINDOW);
        x.push(index + 1);
        cumulative.push(examined ? accepted / outcomes.length : null);
        rolling.push(examined ? recent.reduce((sum, one) => sum + one, 0) / recent.length : null);
      }
      if (items.length > 0 && round.examined > 0) {
        bars.x.push((items[0].index + items[items.length - 1].index) / 2 + 1);
        bars.y.push(finite(round.accepted));
        bars.width.push(items.length - 0.25);
        bars.customdata.push(items[0].index);
      }
      if (run.method === "verifier_only") reason = "Nothing is examined: the verifier writes every token.";
      if (run.method === "drafter_only") reason = "Nothing is examined: every draft is kept.";
      schedule();
    }

    function traces(look) {
      const line = (name, y, colour, width, dash) => ({
        type: "scatter", mode: "lines", name, x, y, yaxis: "y2", connectgaps: false,
        line: { color: colour, width, dash }, hovertemplate: "%{y:.0%}",
      });
      return [
        line("acceptance rate", cumulative, look.strong, 2.5, "solid"),
        line("last " + WINDOW, rolling, look.accent, 1.5, "dot"),
        { type: "bar", name: "accepted in round", ...bars, marker: { color: look.bar }, hovertemplate: "%{y}" },
      ];
    }

    function layout(look) {
      const words = reason || (x.length === 0 ? "The acceptance rate will be drawn here." : "");
      const axis = { fixedrange: true, zeroline: false, linecolor: look.line, tickcolor: look.line, gridcolor: look.line };
      const side = { ...axis, visible: words === "" };
      return {
        datarevision: revision, autosize: true, dragmode: false, hovermode: "x unified", bargap: 0, showlegend: false,
        margin: { l: 42, r: 30, t: 8, b: 36 },
        paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
        font: { family: look.font, size: 11, color: look.text },
        hoverlabel: { bgcolor: look.panel, bordercolor: look.line, font: { color: look.text } },
        xaxis: { ...axis, visible: x.length > 0, showgrid: false, tickformat: "d", title: { text: "token", standoff: 4 },
          range: [0.4, Math.max(20, x.length) + 0.6] },
        yaxis: { ...side, side: "right", showgrid: false, tickformat: "d", nticks: 6,
          range: [0, 1.06 * Math.max(4, ...bars.y)] },
        yaxis2: { ...side, side: "left", overlaying: "y", range: [0, 1.06], tickformat: ".0%",
          tickmode: "array", tickvals: [0, 0.25, 0.5, 0.75, 1] },
        shapes: marked === null ? [] : [{ type: "line", x0: marked + 1, x1: marked + 1, yref: "paper", y0: 0, y1: 1,
          line: { color: look.text, width: 1.5 } }],
        annotations: words ? [{ text: words, showarrow: false, xref: "paper", yref: "paper", x: 0.5, y: 0.5,
          font: { size: 13, color: look.muted } }] : [],
      };
    }

    async function draw() {
      scheduled = false;
      if (!Plotly || node.clientWidth === 0) return;
      const start = performance.now();
      const look = colours();
      legend.hidden = reason !== "" || x.length === 0;
      revision += 1;
      await Plotly.react(node, traces(look), layout(look), { displayModeBar: false, responsive: false });
      if (!wired) node.on("plotly_click", ({ points }) => onPoint(points[0].customdata ?? Math.round(points[0].x) - 1));
      wired = true;
      drawn = performance.now();
      pause = 4 * (drawn - start);
    }

    /** Draw in a coming frame; on a slow machine less often, so that the text keeps flowing. */
    function schedule() {
      if (scheduled) return;
      scheduled = true;
      const wait = drawn + pause - performance.now();
      setTimeout(() => requestAnimationFrame(draw), Math.max(0, wait));
    }

    function mark(index) {
      marked = index;
      schedule();
    }

    function use(loaded) {
      Plotly = loaded || null;
      node.hidden = Plotly === null;
      note.hidden = Plotly !== null;
      note.textContent = "The chart could not be loaded; text and inspector work without it.";
      schedule();
    }

    return { reset, add, mark, use, schedule, node };
  }

  // ---------------------------------------------------------------- the view

  return function createTraceView(root, { methods = {}, plotly = null, onSelect = () => {} } = {}) {
    const host = root.matches(".specviz") ? root : root.querySelector(".specviz");
    const find = (selector) => host.querySelector(selector);
    const text = find(".sv-text");
    const panel = find(".sv-inspector");
    const status = createStatus(find(".sv-status"));
    const chart = createChart(find(".sv-chart-panel"), colours, pin);
    const read = createReader();
    let run, items, shown, pinned, tabStop;
    let following = true; // whether the text scrolls along with what is written

    function reset() {
      run = {};
      items = [];
      shown = pinned = tabStop = null;
      following = true;
      text.replaceChildren();
      find(".sv-empty").hidden = false;
      find(".sv-prompt").hidden = true;
      find(".sv-prompt").open = false;
      status.reset();
      chart.reset();
      inspect(null);
    }

    function update(value) {
      const { anew, entries } = read(string(value));
      if (anew) reset();
      const added = document.createDocumentFragment();
      for (const entry of entries) {
        status.add(entry);
        if (entry?.type === "run") start(entry);
        else if (entry?.type === "round") added.append(addRound(entry));
      }
      if (entries.length === 0) return;
      find(".sv-empty").hidden = true;
      text.append(added);
      if (tabStop === null && items.length > 0) setTabStop(0);
      if (following) text.scrollTop = text.scrollHeight;
      status.show();
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
      const method = Object.hasOwn(methods, run.method) ? methods[run.method] : {};
      panel.replaceChildren(...inspectorNodes(item, run, method));
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
      const item = items[Math.min(Math.max(index, 0), items.length - 1)];
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
        ArrowDown: first + round?.tokens.length, Home: 0, End: items.length - 1 };
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

    function dark() {
      const themed = getComputedStyle(host).getPropertyValue("--body-text-color") !== "";
      return host.closest(".dark") !== null || (!themed && matchMedia("(prefers-color-scheme: dark)").matches);
    }

    /** What the chart takes over from the style sheet. */
    function colours() {
      const style = getComputedStyle(host);
      const look = { font: style.fontFamily };
      for (const name of ["text", "muted", "strong", "accent", "bar", "line", "panel"]) {
        look[name] = style.getPropertyValue("--sv-chart-" + name).trim();
      }
      return look;
    }

    function applyTheme() {
      host.dataset.theme = dark() ? "dark" : "light";
      chart.schedule();
    }

    function watchSurroundings() {
      const themeObserver = new MutationObserver(() => {
        if (host.isConnected) applyTheme();
        else themeObserver.disconnect();
      });
      for (const node of [document.documentElement, document.body]) {
        themeObserver.observe(node, { attributes: true, attributeFilter: ["class"] });
      }
      matchMedia("(prefers-color-scheme: dark)").addEventListener("change", applyTheme);
      new ResizeObserver(() => chart.schedule()).observe(chart.node);
    }

    reset();
    listen();
    applyTheme();
    watchSurroundings();
    Promise.resolve(plotly).then(chart.use, () => chart.use(null));
    return { update };
  };
})();
