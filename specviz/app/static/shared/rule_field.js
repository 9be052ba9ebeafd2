/**
 * A field for a rule: what is typed, the rule as it is set in type, and under a mistake a caret with a sentence. Text only: what is
 * typed never becomes markup. Knows the language; knows no method and computes nothing.
 */

import { attributes, el } from "./dom.js";
import { RuleError, parse, typeset } from "./expression.js";

const HELP = "q(v) p(v) q1(v) p1(v) · max, H, top(k, …) of q p q1 p1 · TV JS a · + - * / min max sqrt log exp · >= > <= < and or not";
const PROMISE = "Trusts a token where it holds. Whatever it says, acceptance and residual follow from π, so decoding towards that π is lossless.";

/** A field that begins with a rule; `onRule` hears of each text that is one. {node, set, input}. */
export function ruleField(rule, onRule) {
  const input = attributes(el("textarea", "sr-input"), { rows: 1, spellcheck: "false", autocapitalize: "off", autocomplete: "off",
    maxlength: 400, "aria-label": "Your own rule", "data-control": "rule" });
  const shown = attributes(el("p", "sr-shown"), { "aria-live": "polite", "data-testid": "rule-shown" });
  const pointed = attributes(el("pre", "sr-pointed"), { "data-testid": "rule-pointed", "aria-hidden": "true" });
  const help = el("p", "sv-caption sr-help", HELP);
  const node = el("div", "sr-field", input, pointed, shown, help);

  /** Says what the text means, or where it goes wrong; true where it is a rule. */
  function check() {
    const text = input.value;
    try {
      shown.replaceChildren(el("b", "", typeset(parse(text))), el("span", "sv-caption", PROMISE));
      pointed.hidden = true;
      input.removeAttribute("aria-invalid");
      return true;
    } catch (error) {
      if (!(error instanceof RuleError)) throw error;
      shown.textContent = error.message;
      pointed.textContent = text.replace(/\s/g, " ") + "\n" + " ".repeat(error.position) + "^";
      pointed.hidden = false;
      input.setAttribute("aria-invalid", "true");
      return false;
    }
  }

  input.addEventListener("input", () => check() && onRule(input.value));
  const set = (text) => {
    if (text === input.value) return;
    input.value = text;
    check();
  };
  input.value = rule;
  check();
  return { node, set, input };
}
