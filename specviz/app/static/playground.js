/**
 * The playground: six words, two distributions to set by hand, and all that a method makes of them, as it is moved.
 * Computes with methods.js in the browser; knows no model, no trace and no server. The tour shows parts of it.
 *
 * createPlayground(host, {methods, start, controls, shows, offered, keepLenience}) -> {state, view()}
 *   methods   name -> {title, formula, sentence, score_label, threshold_label, range, default_lenience, ends}
 *   start     what differs from START
 *   controls  which of "presets", "method", "lenience", "temperature", "beliefs" can be moved
 *   shows     which of "figures", "rule", "table", "throws", "changed" are shown
 *   offered   the names of the methods to choose from; all, if left out
 *   keepLenience  whether another method takes over the lenience; else it comes with its own
 */

const SCENE = "The capital of Australia is …";
const WORDS = ["Canberra", "Sydney", "Melbourne", "Perth", "a", "the"];
const PRESETS = {
  "confident and wrong": { q1: [0.16, 0.66, 0.1, 0.04, 0.02, 0.02], p1: [0.8, 0.1, 0.04, 0.02, 0.02, 0.02] },
  "confident and right": { q1: [0.7, 0.16, 0.06, 0.03, 0.02, 0.03], p1: [0.86, 0.06, 0.03, 0.02, 0.01, 0.02] },
  "both unsure": { q1: [0.22, 0.3, 0.18, 0.12, 0.1, 0.08], p1: [0.28, 0.2, 0.16, 0.12, 0.1, 0.14] },
  "they agree": { q1: [0.5, 0.25, 0.12, 0.06, 0.04, 0.03], p1: [0.52, 0.24, 0.12, 0.06, 0.03, 0.03] },
  "verifier sure": { q1: [0.3, 0.35, 0.15, 0.1, 0.04, 0.06], p1: [0.95, 0.02, 0.01, 0.01, 0.005, 0.005] },
};
const THROWS = 1000;
const WHOLE_STEP = 0.1;
const STEP = 0.01;
const START = { ...PRESETS["confident and wrong"], method: "cascade_tokenV3", lenience: 0.5, temperature: 1, seed: 1 };
const ALL_CONTROLS = ["presets", "method", "lenience", "temperature", "beliefs"];
const ALL_SHOWN = ["figures", "rule", "table", "throws"];

const settled = (value) => Number(value.toFixed(12)); // without what rounding left in the last places
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
const percent = (share) => 100 * share + "%";
const ruled = (state) =>
  ruling(state.method, beliefs(state.q1.map(Math.log), state.p1.map(Math.log), state.temperature), state.lenience);

/** The distribution with one word's probability set; the others keep their proportions (or share alike, at none). */
function withProbability(from, word, value) {
  const rest = 1 - from[word];
  return from.map((mass, at) => {
    if (at === word) return value;
    return (1 - value) * (rest > 1e-9 ? mass / rest : 1 / (from.length - 1));
  });
}

function attributes(node, values) {
  for (const [name, value] of Object.entries(values)) node.setAttribute(name, value);
  return node;
}

// ---- controls

/** A range input with its name, its value and what its ends mean. `set` takes {min, max, step, value, ends, disabled}. */
function rangeControl(name, key, onInput) {
  const input = attributes(el("input", "sp-range"), { type: "range", "aria-label": name, "data-control": key });
  const shown = el("span", "sp-value");
  const low = el("span", "");
  const high = el("span", "");
  const say = () => {
    shown.textContent = input.disabled ? DASH : signed(Number(input.value), String(Math.abs(input.value)));
    input.setAttribute("aria-valuetext", shown.textContent);
  };
  input.addEventListener("input", () => {
    say();
    onInput(Number(input.value));
  });
  const set = ({ ends = ["", ""], disabled = false, value, ...range }) => {
    Object.assign(input, range, { disabled });
    input.value = value;
    [low.textContent, high.textContent] = ends;
    say();
  };
  const head = el("p", "sp-control-head", el("span", "sp-control-name", name), shown);
  return { node: el("div", "sp-control", head, input, el("p", "sp-ends", low, high)), set };
}

/** A choice of one among several, as buttons that stay down; `options` are [value, words]. */
function choice(name, key, options, onChoose) {
  const group = attributes(el("div", "sp-choice"), { role: "group", "aria-label": name, "data-control": key });
  const mark = (chosen) => {
    for (const node of group.children) node.setAttribute("aria-pressed", String(node.dataset.value === chosen));
  };
  for (const [value, words] of options) {
    const button = attributes(el("button", "sp-button", words), { type: "button", "data-value": value });
    button.addEventListener("click", () => onChoose(value));
    group.append(button);
  }
  return { node: el("div", "sp-control", el("p", "sp-control-head sp-control-name", name), group), mark };
}

function methodSelect(methods, names, onChoose) {
  const select = attributes(el("select", "sp-select"), { "aria-label": "Method", "data-control": "method" });
  for (const name of names) {
    const option = el("option", "", methods[name].title);
    option.value = name;
    select.append(option);
  }
  select.addEventListener("change", () => onChoose(select.value));
  const node = el("div", "sp-control", el("p", "sp-control-head sp-control-name", "Method"), select);
  return { node, mark: (name) => (select.value = name) };
}

/** One word's probability in one distribution: a bar to drag or to move by keys, and the number to type. */
function beliefControl(word, key, whose, onSet) {
  const name = WORDS[word] + ": " + whose;
  const fill = el("span", "sp-fill");
  const bar = attributes(el("div", "sp-bar sp-" + key, fill),
    { role: "slider", tabindex: 0, "aria-label": name, "aria-valuemin": 0, "aria-valuemax": 1, "data-belief": key + word });
  const field = attributes(el("input", "sp-field"), { type: "number", min: 0, max: 1, step: STEP, inputmode: "decimal",
    "aria-label": name + " as a number", "data-field": key + word });
  let value = 0;
  let grip = null; // the distribution as it was when the drag began
  const move = (to, from) => onSet(word, clamp(Math.round(to * 1000) / 1000, 0, 1), from);

  const drag = (event) => {
    const box = bar.getBoundingClientRect();
    move(Math.round((event.clientX - box.left) / box.width / STEP) * STEP, grip);
  };
  bar.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    grip = onSet.current();
    bar.setPointerCapture(event.pointerId);
    drag(event);
  });
  bar.addEventListener("pointermove", (event) => grip && drag(event));
  bar.addEventListener("pointercancel", () => grip && onSet(word, grip[word], grip)); // it was a scroll after all
  for (const end of ["pointerup", "pointercancel", "lostpointercapture"]) bar.addEventListener(end, () => (grip = null));
  bar.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const goals = { ArrowRight: value + STEP, ArrowUp: value + STEP, ArrowLeft: value - STEP, ArrowDown: value - STEP,
      PageUp: value + WHOLE_STEP, PageDown: value - WHOLE_STEP, Home: 0, End: 1 };
    if (!Object.hasOwn(goals, event.key)) return;
    move(goals[event.key]);
    event.preventDefault();
  });
  const text = () => String(Math.round(value * 1000) / 1000);
  field.addEventListener("input", () => {
    if (field.value !== "" && Number.isFinite(field.valueAsNumber)) move(field.valueAsNumber);
  });
  field.addEventListener("change", () => (field.value = text()));
  const set = (to) => {
    value = to;
    fill.style.width = percent(to);
    attributes(bar, { "aria-valuenow": text(), "aria-valuetext": number(to), "data-exact": to });
    if (field !== document.activeElement) field.value = text(); // else someone is typing
  };
  return { nodes: [bar, field], set };
}

/** All twelve probabilities, two lines for each word. */
function beliefsControl(onChange) {
  const whose = { q1: "drafter q₁", p1: "verifier p₁" };
  const parts = [];
  let state = null;
  const grid = attributes(el("div", "sp-beliefs"), { role: "group", "aria-label": "What the two models believe" });
  WORDS.forEach((word, at) => {
    const lines = Object.entries(whose).map(([key, name]) => {
      const onSet = (index, value, from) => onChange(key, withProbability(from ?? state[key], index, value));
      onSet.current = () => state[key];
      const part = beliefControl(at, key, name, onSet);
      parts.push([key, at, part]);
      return el("div", "sp-line", el("span", "sp-line-name", key === "q1" ? "q₁" : "p₁"), ...part.nodes);
    });
    grid.append(el("div", "sp-belief", el("span", "sp-word", word), el("div", "", ...lines)));
  });
  const note = el("p", "sv-caption", "Drag a bar, move it with the arrow keys, or type a number; the other words make room in proportion.");
  const key = el("p", "sp-key", el("span", "sp-key-q", "q₁ drafter"), el("span", "sp-key-p", "p₁ verifier"));
  const show = (now) => {
    state = now;
    for (const [name, word, part] of parts) part.set(now[name][word]);
  };
  return { node: el("div", "sp-control", el("div", "sp-beliefs-head", el("p", "sp-control-name", "What the two believe, at temperature 1"), key), grid, note), show };
}

// ---- what is shown

const FIGURES = {
  acceptance: ["acceptance rate", "Expected share of the drafter's proposals that are accepted: the sum of q(v) · acceptance(v)."],
  rejection: ["rejection rate", "1 − acceptance rate: the cost that the paper plots."],
  tv_p: ["TV(π, p)", "How far what is emitted is from the verifier; 0 is lossless."],
  tv_q: ["TV(π, q)", "How far what is emitted is from the drafter."],
};

function figures() {
  const node = attributes(el("dl", "sp-figures"), { "data-testid": "figures" });
  const values = {};
  for (const [key, [name, why]] of Object.entries(FIGURES)) {
    values[key] = el("dd", "");
    node.append(attributes(el("div", "", el("dt", "", name), values[key]), { title: why, "data-figure": key }));
  }
  const show = (view) => {
    const found = { acceptance: view.acceptanceRate, rejection: 1 - view.acceptanceRate,
      tv_p: totalVariation(view.target, view.p), tv_q: totalVariation(view.target, view.q) };
    for (const [key, value] of Object.entries(found)) {
      values[key].textContent = number(value < ROUNDING ? 0 : value);
      values[key].dataset.exact = value;
    }
  };
  return { node, show };
}

/** The words of those that are trusted, as a list in a sentence. */
const named = (trusted) => WORDS.filter((_, word) => trusted[word]).join(", ");

/** The rule with this case's numbers put in, in one or two sentences. */
function caseSentence(view, method) {
  if (view.method === "drafter_only") return "Every proposal is kept unexamined, so π = q.";
  if (view.method === "verifier_only") return "The drafter is not asked: every token is drawn from p, so π = p.";
  if (view.method === "speed") {
    const word = view.q.indexOf(largest(view.q));
    return "For " + WORDS[word] + ": min(1, " + number(view.p[word]) + " / (" + number(1 - view.lenience) + " × " +
      number(view.q[word]) + ")) = " + number(view.acceptance[word]) + ". No word is trusted or distrusted as such.";
  }
  if (Array.isArray(view.score)) return wordsSentence(view, method);
  const [score, threshold] = compared(settled(view.score), settled(view.threshold));
  const trusted = view.trusted[0];
  return method.score_label + " = " + score + (trusted ? " ≥ " : " < ") + method.threshold_label + " = " + threshold +
    (trusted ? ": the drafter is trusted, so π = q." : ": the drafter is not trusted here, so π = p.");
}

function wordsSentence(view, method) {
  const deferred = total(view.q.filter((_, word) => !view.trusted[word]));
  const rule = "A word is trusted where " + method.score_label + " ≥ " + method.threshold_label + " = " + number(settled(view.threshold));
  if (view.trusted.every(Boolean)) return rule + ": all are, so π = q.";
  if (!view.trusted.some(Boolean)) return rule + ": none is, so π = p.";
  return rule + ": " + named(view.trusted) + ". The rest of the drafter’s mass, " + number(deferred) + ", is spread as p says.";
}

function ruleBox(methods) {
  const title = el("p", "sv-caption");
  const words = attributes(el("p", "sp-rule-words"), { "aria-live": "polite", "data-testid": "rule" });
  const why = el("p", "sv-caption");
  const show = (view) => {
    const method = methods[view.method];
    title.textContent = method.title + ": " + method.formula;
    words.textContent = caseSentence(view, method);
    why.textContent = method.sentence;
  };
  return { node: el("div", "sv-rule sp-rule", title, words, why), show };
}

/** One row a word: q, p, whether it is trusted, acceptance, residual, π. */
function outcomeTable() {
  const caption = el("caption", "sp-caption");
  const columns = [["q", "q"], ["p", "p"], ["trusted", "trust\u00aded?"], ["acceptance", "accept\u00adance"],
    ["residual", "resid\u00adual"], ["target", "π"]];
  const heads = columns.map(([, name]) => attributes(el("th", "", name), { scope: "col" }));
  const rows = WORDS.map((word) => {
    const cells = Object.fromEntries(columns.map(([key]) => {
      const cell = { text: el("span", ""), bar: el("span", "sp-cell-bar") };
      cell.node = attributes(el("td", "sp-cell sp-cell-" + key, cell.bar, cell.text), { "data-cell": key });
      return [key, cell];
    }));
    const node = el("tr", "", attributes(el("th", "", word), { scope: "row" }), ...columns.map(([key]) => cells[key].node));
    return { node, cells };
  });
  const node = attributes(el("table", "sp-table", caption,
    el("thead", "", el("tr", "", attributes(el("th", "", "word"), { scope: "col" }), ...heads)), el("tbody", "", ...rows.map((row) => row.node))),
  { "data-testid": "outcome" });
  const show = (view, { temperature }) => {
    caption.textContent = "Word by word, at temperature " + number(temperature);
    rows.forEach(({ cells }, word) => {
      for (const key of ["q", "p", "acceptance", "residual", "target"]) {
        cells[key].text.textContent = inTable(view[key][word]);
        cells[key].node.dataset.exact = view[key][word];
        cells[key].bar.style.setProperty("--share", view[key][word]);
      }
      cells.trusted.text.textContent = view.trusted === null ? DASH : view.trusted[word] ? "yes" : "no";
    });
  };
  return { node, show };
}

/** A probability in as few places as tell it from nothing and from certainty. */
function inTable(value) {
  if (value < ROUNDING || value > 1 - ROUNDING) return String(Math.round(value));
  return value.toFixed(value < 0.01 || value > 0.99 ? 3 : 2);
}

const SVG = "http://www.w3.org/2000/svg";
const shape = (tag, values) => attributes(document.createElementNS(SVG, tag), values);
const DOTS = 10; // dots in a column, so that a column is one hundredth of all throws
const COLUMNS = 100;

/** A path with one mark for each throw from the `from`-th on: a dot if accepted, a cross if resampled. */
function marks(accepted, from, count) {
  let path = "";
  for (let at = from; at < from + count; at += 1) {
    const x = Math.floor(at / DOTS) + 0.5;
    const y = DOTS - (at % DOTS) - 0.5;
    path += accepted ? "M" + x + " " + y + "h0" : "M" + (x - 0.3) + " " + (y - 0.3) + "l.6 .6m0 -.6l-.6 .6";
  }
  return path;
}

/** One word's throws as marks on the axis of its probability, and the formula's π as a line across it. */
function throwRow(word) {
  const picture = shape("svg", { viewBox: "0 0 " + COLUMNS + " " + (DOTS + 1), class: "sp-marks", role: "img" });
  const kept = shape("path", { class: "sp-dots", transform: "translate(0 .5)" });
  const redone = shape("path", { class: "sp-crosses", transform: "translate(0 .5)" });
  const line = shape("path", { class: "sp-formula" });
  picture.append(shape("rect", { width: COLUMNS, height: DOTS + 1, class: "sp-field-of-marks" }), kept, redone, line);
  const words = el("span", "sp-throw-words");
  const node = attributes(el("div", "sp-throw", el("span", "sp-word", word), picture, words), { "data-throw": word });
  const show = (accepted, resampled, target) => {
    kept.setAttribute("d", marks(true, 0, accepted));
    redone.setAttribute("d", marks(false, accepted, resampled));
    line.setAttribute("d", "M" + COLUMNS * target + " 0v" + (DOTS + 1));
    const seen = ((accepted + resampled) / THROWS).toFixed(3);
    words.replaceChildren(el("b", "", seen), " · π " + target.toFixed(3));
    picture.setAttribute("aria-label", word + ": " + accepted + " accepted and " + resampled + " resampled, a share of " +
      seen + "; the formula says " + target.toFixed(3));
    attributes(node, { "data-accepted": accepted, "data-resampled": resampled });
  };
  return { node, show };
}

/** A thousand tokens thrown by the rule beside what the formula says. */
function throwsPanel(onAgain) {
  const rows = WORDS.map(throwRow);
  const again = attributes(el("button", "sp-button", "Throw again"), { type: "button", "data-testid": "again" });
  again.addEventListener("click", onAgain);
  const key = el("p", "sp-key");
  const node = attributes(el("section", "sp-throws", el("div", "sp-throws-head", el("h2", "", "1,000 simulated tokens"), again), key,
    ...rows.map((row) => row.node)), { "aria-label": "Simulated tokens" });
  const show = (view, { seed }) => {
    const thrown = simulate(view, coinsOf(seed, THROWS));
    const tally = WORDS.map(() => [0, 0]);
    for (const { word, accepted } of thrown) tally[word][accepted ? 0 : 1] += 1;
    rows.forEach((row, word) => row.show(...tally[word], view.target[word]));
    const kept = total(tally.map(([accepted]) => accepted));
    key.replaceChildren(el("span", "sp-key-dot", kept + " accepted drafts"), el("span", "sp-key-cross", THROWS - kept + " resampled"),
      el("span", "sp-key-line", "what the formula says, π"));
  };
  return { node, show };
}

/** How many of the thousand tokens a method changes, the coins being the same. */
function changedFigure() {
  const node = attributes(el("p", "sp-changed"), { "aria-live": "polite", "data-testid": "changed" });
  const show = (view, state) => {
    const changed = changedTokens(view, ruled({ ...state, method: "speed", lenience: 0 }), state.seed);
    node.textContent = changed + " of 1,000 tokens differ from those of speculative decoding at α = 0, thrown with the same coins.";
  };
  return { node, show };
}

function changedTokens(view, other, seed) {
  const coins = coinsOf(seed, THROWS);
  const words = simulate(other, coins);
  return simulate(view, coins).filter(({ word }, at) => word !== words[at].word).length;
}

// ---- the whole

function createPlayground(host, { methods, start = {}, controls = ALL_CONTROLS, shows = ALL_SHOWN, offered = Object.keys(methods),
  keepLenience = false }) {
  const state = { ...START, ...start };
  const change = (news) => {
    Object.assign(state, news);
    refresh();
  };
  const preset = () => Object.keys(PRESETS).find((name) => PRESETS[name].q1 === state.q1 && PRESETS[name].p1 === state.p1);
  const makers = {
    presets: () => choice("Start from", "presets", Object.keys(PRESETS).map((name) => [name, name]), (name) => change(PRESETS[name])),
    method: () => (offered.length > 3 ? methodSelect(methods, offered, setMethod)
      : choice("Method", "method", offered.map((name) => [name, methods[name].title]), setMethod)),
    lenience: () => rangeControl("Lenience α", "lenience", (lenience) => change({ lenience })),
    temperature: () => rangeControl("Temperature", "temperature", (temperature) => change({ temperature })),
    beliefs: () => beliefsControl((key, values) => change({ [key]: values })),
  };
  const displays = { figures, rule: () => ruleBox(methods), table: outcomeTable, changed: changedFigure,
    throws: () => throwsPanel(() => change({ seed: state.seed + 1 })) };
  const parts = Object.fromEntries(controls.map((name) => [name, makers[name]()]));
  const shown = shows.map((name) => [name, displays[name]()]);

  /** Another method, at the lenience it is offered with. */
  function setMethod(method) {
    change(keepLenience ? { method } : { method, lenience: methods[method].default_lenience });
  }

  function refresh() {
    const { range, ends, default_lenience: usual } = methods[state.method];
    const moves = range[0] < range[1];
    parts.presets?.mark(preset());
    parts.method?.mark(state.method);
    parts.lenience?.set({ min: moves ? range[0] : 0, max: moves ? range[1] : 1, step: STEP, disabled: !moves,
      value: moves ? state.lenience : usual, ends: moves ? ends : ["this method has no lenience", ""] });
    parts.temperature?.set({ min: 0, max: 2, step: 0.05, value: state.temperature, ends: ["0: greedy", "2"] });
    parts.beliefs?.show(state);
    const view = ruled(state);
    for (const [, part] of shown) part.show(view, state);
  }

  const box = (name) => shown.filter(([key]) => (key === "figures") === (name === "figures")).map(([, part]) => part.node);
  host.append(...box("figures"), el("div", "sp-main", el("div", "sp-controls", ...Object.values(parts).map((part) => part.node)),
    el("div", "sp-shown", ...box("rest"))));
  refresh();
  return { state, view: () => ruled(state) };
}
