/** The rejected draft tokens of a run, by their verifier probability in comparison with the verifier's favourite. */

import { attributes, el } from "../../shared/dom.js";
import { chip } from "../../race/chips.js";
import { row } from "./parts.js";

const SHOWN = 9;

export function rejectionsPicture({ rows, good_enough: line, prompt }, { language }) {
  const { say, percent } = language;
  const bars = rows.slice(0, SHOWN).map(({ text, share }) =>
    row(share >= line ? "is-good" : "", chip(text, "rejected"), share, percent(share)));
  const mark = el("span", "sl-mark", say("good_enough", { share: percent(line) }));
  const list = attributes(el("div", "sl-rejections", ...bars), { "data-testid": "rejections" });
  list.style.setProperty("--line", line);
  const node = el("figure", "sl-figure", el("p", "sl-prompt", el("span", "sl-name", say("prompt")), " ", el("q", "", prompt)),
    mark, list, rows.length > SHOWN && el("p", "sl-more", say("more", { count: String(rows.length - SHOWN) })));
  return { node, reveal: () => node.classList.add("is-open") };
}
