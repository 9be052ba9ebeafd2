/**
 * Two distributions over six words, the distribution that a method emits, and one control: for the lenience or the method.
 * methods.js computes every number, as in the playground.
 */

import { queryOf } from "../../playground/address.js";
import { attributes, el } from "../../shared/dom.js";
import { WORDS, ruled } from "../../playground/cases.js";
import { largest } from "../../playground/methods.js";
import { THROWS, changedTokens, figuresOf, stateOf } from "../figures.js";

const STEP = 0.01;

export function distributionsPicture({ states, control, offered, counts, shows }, { language, methods, onTry = () => {} }) {
  const { say } = language;
  const state = stateOf(states[""]);
  const most = Math.max(largest(state.q1), largest(state.p1));
  const top = most > 0.5 || state.temperature === 0 ? 1 : 1.25 * most;
  const figures = attributes(el("dl", "sl-figures"), { "data-testid": "figures" });
  const rule = attributes(el("p", "sl-rule-line"), { "data-testid": "rule", "aria-live": "polite" });
  const rows = WORDS.map((word) => {
    const bars = ["q", "p", "target"].map((key) => ({ key, fill: el("i", "sl-fill"), number: el("span", "sl-row-number") }));
    const node = el("li", "", el("span", "sl-word", word), el("div", "sl-three", ...bars.map(({ key, fill, number }) =>
      el("div", "sl-thin " + key, el("span", "sl-bar", fill), number))));
    return { node, bars };
  });
  const key = el("p", "sl-key", el("span", "drafter", say("drafter") + " q"), el("span", "verifier", say("verifier") + " p"), el("span", "target", "π"));
  const { node: mover, mark, follow = () => {} } = control === "lenience" ? slider() : chooser();
  const node = el("figure", "sl-figure sl-distributions", mover, rule, figures, attributes(el("ol", "sl-words-list", ...rows.map((row) => row.node)), { "data-testid": "outcome" }), key);

  function slider() {
    const [low, high] = methods[state.method].range;
    const input = attributes(el("input", "sl-range"), { type: "range", "aria-label": say("lenience"), "data-control": "lenience", min: low, max: high, step: STEP });
    input.value = state.lenience;
    input.addEventListener("input", () => {
      state.lenience = Number(input.value);
      show();
    });
    const shown = el("output", "sl-value");
    const title = el("label", "", language.title(state.method, methods) + " · " + say("lenience"));
    return { node: el("div", "sl-control", el("p", "sl-control-head", title, shown), input),
      follow: () => (input.value = state.lenience),
      mark: () => {
        shown.textContent = "α = " + language.plain(state.lenience);
        input.setAttribute("aria-valuetext", shown.textContent);
      } };
  }

  function chooser() {
    const buttons = offered.map((name) => {
      const button = attributes(el("button", "sl-option", language.title(name, methods)), { type: "button", "data-value": name });
      button.addEventListener("click", () => {
        state.method = name;
        show();
      });
      return button;
    });
    const group = attributes(el("div", "sl-options", ...buttons), { role: "group", "aria-label": say("method"), "data-control": "method" });
    return { node: el("div", "sl-control", el("p", "sl-control-head", el("span", "", say("method")), el("span", "sl-value", "α = " + language.plain(state.lenience))), group),
      mark: () => buttons.forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.value === state.method))) };
  }

  function show() {
    const view = ruled(state);
    const found = figuresOf(state);
    mark();
    onTry(queryOf(state));
    const share = ([, value], name) => figure(say(name), language.number(value), value);
    figures.replaceChildren(share(found.acceptance_rate, "acceptance_rate"), counts ? changed() : share(found.distance, "distance"));
    rule.replaceChildren(...ruleNodes(view));
    rows.forEach(({ bars, node: own }, word) => {
      own.classList.toggle("is-trusted", view.trusted?.[word] === true);
      for (const { key: name, fill, number } of bars) {
        fill.style.width = (100 * view[name][word]) / top + "%";
        number.textContent = language.number(view[name][word]);
        number.dataset.exact = view[name][word];
      }
    });
  }

  const figure = (name, text, exact) => {
    const value = attributes(el("dd", "", text), { "data-exact": exact });
    return el("div", "", el("dt", "", name), value);
  };

  function changed() {
    const count = changedTokens(state);
    return figure(say("changed"), String(count), count / THROWS);
  }

  /** What the method's test compares here, in numbers; nothing for a method without a test. */
  function ruleNodes(view) {
    const method = methods[state.method];
    if (view.threshold === null) return [say("speed_rule")];
    const trusts = view.trusted.some(Boolean);
    if (Array.isArray(view.score)) {
      const words = WORDS.filter((_, word) => view.trusted[word]).join(", ") || "–";
      return [method.score_label + " ≥ " + method.threshold_label + " = ", el("b", "", language.number(view.threshold)), " · " + say("trusted") + ": ", el("b", "", words)];
    }
    return [method.score_label + " = ", el("b", "", language.number(view.score)), trusts ? " ≥ " : " < ", method.threshold_label + " = ",
      el("b", "", language.number(view.threshold)), " · ", el("b", "", (trusts ? "✓ " : "✕ ") + say(trusts ? "trusted" : "not_trusted"))];
  }

  show();
  /** To the state that the answer is about. */
  function reveal() {
    if (!shows) return;
    Object.assign(state, stateOf(states[shows]));
    follow();
    show();
  }
  return { node, reveal };
}
