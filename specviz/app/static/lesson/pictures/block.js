/** Tokens per round by draft length, if every draft token is accepted with the same probability. */

import { attributes, el } from "../../shared/dom.js";
import { blockEfficiency } from "../../playground/methods.js";

const MOST = 16;

export function blockPicture({ rate, draft_length: asked }, { language, onTry = () => {} }) {
  const { say } = language;
  const input = attributes(el("input", "sl-range"), { type: "range", min: 1, max: MOST, step: 1, value: 2, "aria-label": say("draft_length"), "data-control": "draft_length" });
  const shown = el("output", "sl-value");
  const yields = el("dd", "");
  const bars = attributes(el("ol", "sl-reach"), { "aria-label": say("tokens_per_call") });
  const show = () => {
    const length = Number(input.value);
    shown.textContent = "K = " + length;
    onTry("?" + new URLSearchParams({ tab: "generate", k: length }));
    yields.textContent = length === asked && !node.classList.contains("is-open") ? "?" : language.number(blockEfficiency(rate, length));
    bars.replaceChildren(...Array.from({ length: MOST }, (_, before) => {
      const bar = el("i", before < length ? "" : "beyond");
      bar.style.height = 100 * rate ** before + "%";
      return attributes(el("li", "", bar, el("span", "", String(before + 1))), before < length ? { title: say("counts", { count: String(before + 1) }) + ": " + language.number(rate ** before) } : {});
    }));
  };
  const node = el("figure", "sl-figure", el("div", "sl-control", el("p", "sl-control-head", el("label", "", say("draft_length")), shown), input),
    attributes(el("dl", "sl-figures", el("div", "", el("dt", "", say("tokens_per_call")), yields)), { "data-testid": "figures" }), bars);
  input.addEventListener("input", show);
  show();
  function reveal() {
    node.classList.add("is-open");
    input.value = asked;
    show();
  }
  return { node, reveal };
}
