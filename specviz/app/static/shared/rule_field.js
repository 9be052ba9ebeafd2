/**
 * A field for a rule: the typed text, the rule as a formula and, below an error, a caret with a sentence. What is typed is text and
 * never becomes markup. The server parses the rule. Knows no methods and computes nothing.
 */

import { attributes, el } from "./dom.js";
import { knownRule, readRule } from "./rules.js";

const HELP = "q(v) p(v) q1(v) p1(v) · max, H, top(k, …) of q p q1 p1 · TV JS a · + - * / min max sqrt log exp · >= > <= < and or not";
const PROMISE = "A token is trusted where the rule holds. This defines a distribution π, from which the text is drawn exactly.";
const PAUSE = 150; // milliseconds without a key before the server is asked

/** A field that begins with a rule; `onRule` hears of each rule that is typed, as the server reads it. {node, set, input}. */
export function ruleField(rule, onRule) {
  const input = attributes(el("textarea", "sr-input"), { rows: 1, spellcheck: "false", autocapitalize: "off", autocomplete: "off",
    maxlength: 400, "aria-label": "Your own rule", "data-control": "rule" });
  const shown = attributes(el("p", "sr-shown"), { "aria-live": "polite", "data-testid": "rule-shown" });
  const pointed = attributes(el("pre", "sr-pointed"), { "data-testid": "rule-pointed", "aria-hidden": "true" });
  const help = el("p", "sv-caption sr-help", HELP);
  const node = el("div", "sr-field", input, pointed, shown, help);
  let timer = 0;

  /** Say what the rule means, or where it goes wrong. */
  function show(found) {
    const wrong = found !== undefined && !found.tree;
    pointed.hidden = !wrong;
    if (wrong) input.setAttribute("aria-invalid", "true");
    else input.removeAttribute("aria-invalid");
    if (!found) return shown.replaceChildren();
    if (!wrong) return shown.replaceChildren(el("b", "", found.formula), el("span", "sv-caption", PROMISE));
    shown.textContent = found.sentence;
    pointed.textContent = found.expression.replace(/\s/g, " ") + "\n" + " ".repeat(found.position) + "^";
  }

  async function check(typed) {
    const text = input.value;
    const found = await readRule(text);
    if (text !== input.value) return; // more was typed meanwhile
    show(found);
    if (typed && found?.tree) onRule(found);
  }

  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => check(true), knownRule(input.value) ? 0 : PAUSE);
  });
  const set = (text) => {
    if (text === input.value) return;
    clearTimeout(timer);
    input.value = text;
    check(false);
  };
  input.value = rule;
  check(false);
  return { node, set, input };
}
