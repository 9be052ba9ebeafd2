/**
 * Six wrong engines, a card each: the rule, its report, and what it writes beside what it should write.
 *
 * Props: `words`, `engines` (those of `specviz.app.components.wrong_engines_view`).
 */

import { attributes, el, percent, percents } from "../shared/dom.js";
import { followTheme } from "../shared/theme.js";

/** A bar whose full length is the probability `most`. */
function bar(className, share, most) {
  const node = el("span", className);
  node.style.width = (100 * share) / most + "%";
  return node;
}

function row(word, writes, should, most, isMost) {
  const [real, right] = percents(writes, should);
  const bars = attributes(el("span", "we-bars", bar("we-should", should, most), bar("we-writes", writes, most)), { "aria-hidden": "true" });
  const numbers = writes === should ? real : real + ", not " + right;
  return el("li", isMost ? "we-row is-most" : "we-row", el("span", "we-word", word), bars, el("span", "we-numbers", numbers));
}

function reportOf({ before, reference, address, after }) {
  const link = attributes(el("a", "", reference), { href: address, target: "_blank", rel: "noopener" });
  return el("p", "sv-caption we-report", "Public report: ", before, link, after);
}

function card({ name, sentence, report, after, writes, should, word, biases }, words, most) {
  const [real, right] = percents(writes[word], should[word]);
  const token = after === null ? "The first word" : "The word after “" + after + "”";
  const found = token + ": it writes “" + words[word] + "” " + real + " of the time instead of " + (should[word] ? right : "never") + ".";
  const rows = words.map((each, at) => row(each, writes[at], should[at], most, at === word));
  const [here, both] = biases.map(percent);
  const size = "Bias (total variation): " + here + " here, " + both + " over two words.";
  return el("article", "sv-panel we-card", el("h3", "", name), el("p", "", sentence), el("p", "we-found", found),
    attributes(el("ul", "we-rows", ...rows), { "aria-label": "Probabilities of the six words" }), el("p", "sv-caption", size), reportOf(report));
}

/** Mount the component in gradio’s element. */
export function mount(element, { props: { words, engines } }) {
  const host = element.querySelector(".specviz");
  followTheme(host);
  const most = Math.max(...engines.flatMap(({ writes, should }) => [...writes, ...should]));
  host.querySelector(".we-cards").append(...engines.map((engine) => card(engine, words, most)));
}
