/**
 * The controls of the playground, each a node with a setter: a choice, a method, a probability for each word.
 * Knows the six words but no rule. Computes only the probability that is left for the other words.
 */

import { attributes, el, number } from "../shared/dom.js";
import { ruleField } from "../shared/rule_field.js";
import { STEP, WORDS } from "./cases.js";

const WHOLE_STEP = 0.1;
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
const percent = (share) => 100 * share + "%";

/** The distribution with one word's probability set; the others keep their proportions (or share alike, at none). */
function withProbability(from, word, value) {
  const rest = 1 - from[word];
  return from.map((mass, at) => {
    if (at === word) return value;
    return (1 - value) * (rest > 1e-9 ? mass / rest : 1 / (from.length - 1));
  });
}

/** A choice of one among several, as buttons that stay down; `options` are [value, words]. */
export function choice(name, key, options, onChoose) {
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

export function methodSelect(methods, names, onChoose) {
  const select = attributes(el("select", "sp-select"), { "aria-label": "Method", "data-control": "method" });
  const groups = new Map();
  for (const name of names) {
    const option = Object.assign(el("option", "", methods[name].title), { value: name });
    const { group } = methods[name];
    if (!groups.has(group)) groups.set(group, attributes(el("optgroup", ""), { label: group }));
    groups.get(group).append(option);
  }
  select.append(...groups.values());
  select.addEventListener("change", () => onChoose(select.value));
  const node = el("div", "sp-control", el("p", "sp-control-head sp-control-name", "Method"), select);
  return { node, mark: (name) => (select.value = name) };
}

/** A rule of one's own; `show` says whether it is there, `set` writes it. */
export function ruleControl(rule, onRule) {
  const field = ruleField(rule, onRule);
  const node = el("div", "sp-control", el("p", "sp-control-head sp-control-name", "Your own rule"), field.node);
  return { node, show: (shown) => (node.hidden = !shown), set: field.set };
}

/** One word's probability in one distribution: a bar to drag or to move by keys, and the number to type. */
function probabilityControl(word, key, whose, onSet) {
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
export function distributionsControl(onChange) {
  const whose = { q1: "drafter q₁", p1: "verifier p₁" };
  const parts = [];
  let state = null;
  const grid = attributes(el("div", "sp-distributions"), { role: "group", "aria-label": "What the two models believe" });
  WORDS.forEach((word, at) => {
    const lines = Object.entries(whose).map(([key, name]) => {
      const onSet = (index, value, from) => onChange(key, withProbability(from ?? state[key], index, value));
      onSet.current = () => state[key];
      const part = probabilityControl(at, key, name, onSet);
      parts.push([key, at, part]);
      return el("div", "sp-line", el("span", "sp-line-name", key === "q1" ? "q₁" : "p₁"), ...part.nodes);
    });
    grid.append(el("div", "sp-word-row", el("span", "sp-word", word), el("div", "", ...lines)));
  });
  const note = el("p", "sv-caption", "Drag a bar, move it with the arrow keys, or type a number; the other words make room in proportion.");
  const key = el("p", "sp-key", el("span", "sp-key-q", "q₁ drafter"), el("span", "sp-key-p", "p₁ verifier"));
  const show = (now) => {
    state = now;
    for (const [name, word, part] of parts) part.set(now[name][word]);
  };
  return { node: el("div", "sp-control", el("div", "sp-distributions-head", el("p", "sp-control-name", "What the two believe, at temperature 1"), key), grid, note), show };
}
