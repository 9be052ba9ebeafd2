/**
 * One position of a lossless run: for each token the drafter's probability q and, after the reveal, how much of it is accepted,
 * min(q, p), and how much replacements add, the rest of p. Together they are p.
 */

import { attributes, el } from "../../shared/dom.js";
import { chip } from "../../race/chips.js";
import { context } from "./parts.js";

export function losslessnessPicture({ rows, marked, ...place }, { language }) {
  const { say, percent } = language;
  const scale = 1 / Math.max(...rows.flatMap(({ q, p }) => [q, p]));
  const width = (share) => 100 * share * scale + "%";
  const bars = rows.map(({ text, q, p }) => {
    const kept = el("i", "sl-covered");
    const cut = el("i", "sl-cut");
    const filled = el("i", "sl-filled");
    const line = el("i", "sl-line");
    kept.style.width = width(Math.min(q, p));
    cut.style.left = filled.style.left = kept.style.width;
    cut.style.width = width(Math.max(0, q - p));
    filled.style.width = width(Math.max(0, p - q));
    line.style.left = width(p);
    const number = el("span", "sl-both", el("b", "drafter", percent(q)), el("b", "verifier", percent(p)));
    const node = el("li", text === marked ? "is-marked" : "", chip(text), el("span", "sl-bar", kept, cut, filled, line), number);
    return attributes(node, { "data-q": q, "data-p": p });
  });
  const key = el("p", "sl-key", el("span", "drafter first", say("drafter") + " q"), el("span", "verifier line", say("verifier_line") + ": p"),
    el("span", "covered later", say("covered")), el("span", "cut later", say("cut")), el("span", "filled later", say("filled")));
  const node = el("figure", "sl-figure", context(place, language, el("span", "sl-gap", "?")), attributes(el("ol", "sl-balance", ...bars), { "data-testid": "balance" }), key);
  return { node, reveal: () => node.classList.add("is-open") };
}
