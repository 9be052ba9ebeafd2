/** One or two deferral rules at a recorded position: each rule's threshold, the score and, after the reveal, whether it trusts. */

import { attributes, el } from "../../shared/dom.js";
import { chip } from "../../race/chips.js";
import { rulingsOf } from "../figures.js";
import { context, row } from "./parts.js";

export function rulePicture({ tokens, q, p, asked, ...place }, { language, methods }) {
  const { say, percent, percents } = language;
  const likeliest = (masses) => {
    const at = masses.indexOf(Math.max(...masses));
    return { text: tokens[at], probability: masses[at] };
  };
  const draft = { text: tokens[0], q: q[0], p: p[0] };
  const [drafter, verifier] = [q, p].map(likeliest);
  const here = el("span", "sl-here", chip(draft.text));
  const models = el("div", "sl-models",
    row("drafter", [say("drafter") + " ", chip(draft.text)], draft.q, percent(draft.q)),
    row("verifier", [say("verifier") + " ", chip(draft.text)], draft.p, percent(draft.p)),
    drafter.text !== draft.text && row("drafter faint", [say("drafter") + " ", chip(drafter.text)], drafter.probability, percent(drafter.probability)),
    verifier.text !== draft.text && row("verifier faint", [say("verifier") + " ", chip(verifier.text)], verifier.probability, percent(verifier.probability)));
  const tests = rulingsOf({ q, p, asked }).map((ruling) => {
    const [score, threshold] = percents(ruling.score, ruling.threshold);
    const fill = el("i", "sl-fill");
    fill.style.width = 100 * Math.min(1, Math.max(0, ruling.score)) + "%";
    const gate = el("i", "sl-gate");
    gate.style.left = 100 * Math.min(1, Math.max(0, ruling.threshold)) + "%";
    const verdict = el("span", "sl-trust", "");
    const head = el("h3", "", language.title(ruling.method, methods), el("small", "", "α = " + language.plain(ruling.lenience)), verdict);
    const labels = el("p", "sl-sides", el("span", "", say("has") + " " + ruling.score_label + " = ", el("b", "", score)),
      el("span", "", say("needs") + " " + ruling.threshold_label + " = ", el("b", "", threshold)));
    const node = attributes(el("section", "sl-test", head, el("div", "sl-bar", fill, gate), labels), { "data-method": ruling.method });
    return { node, ruling, verdict };
  });
  const node = el("figure", "sl-figure sl-rule", context(place, language, here), models, ...tests.map((test) => test.node));
  function reveal() {
    node.classList.add("is-open");
    for (const { node: test, ruling, verdict } of tests) {
      test.classList.add(ruling.trusted ? "is-trusted" : "is-not");
      verdict.textContent = (ruling.trusted ? "✓ " : "✕ ") + say(ruling.trusted ? "trusted" : "not_trusted");
    }
  }
  return { node, reveal };
}
