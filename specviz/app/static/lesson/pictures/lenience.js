/** Recorded runs that differ only in lenience: a slider from one to the next, their texts, and their costs. */

import { attributes, el } from "../../shared/dom.js";
import { written } from "../../race/chips.js";
import { pause } from "./parts.js";

export function leniencePicture({ prompt, runs }, { language }) {
  const { say } = language;
  const handle = attributes(el("input", "sl-range"), { type: "range", min: 0, max: runs.length - 1, step: 1, value: 0, "aria-label": say("lenience"), "data-testid": "handle" });
  const shown = el("output", "sl-value");
  const figures = el("dl", "sl-figures");
  const text = attributes(el("p", "sl-text"), { "data-testid": "text", "aria-live": "polite" });
  const marks = el("p", "sl-stops", ...runs.map((run) => el("span", "", language.plain(run.lenience))));
  const control = el("div", "sl-control", el("p", "sl-control-head", el("label", "", say("lenience")), shown), handle, marks);
  const node = el("figure", "sl-figure", el("p", "sl-prompt", el("span", "sl-name", say("prompt")), " ", el("q", "", prompt)), control, figures, text);

  function show() {
    const run = runs[Number(handle.value)];
    const first = runs[0].tokens;
    const same = run === runs[0] ? -1 : run.tokens.findIndex((token, at) => token.text !== first[at]?.text);
    shown.textContent = "α = " + language.plain(run.lenience);
    handle.setAttribute("aria-valuetext", shown.textContent);
    figures.replaceChildren(...[[language.percent(run.acceptance_rate), say("acceptance_rate")], [String(run.calls), say("calls")]]
      .map(([value, name]) => el("div", "", el("dt", "", name), el("dd", "", value))));
    const nodes = run.tokens.map((token) => written(token, token.accepted ? "kept" : "own"));
    nodes.forEach((each, at) => {
      each.classList.add("on");
      each.classList.toggle("is-new", same >= 0 && at >= same);
    });
    if (same > 0) nodes.splice(same, 0, attributes(el("span", "sl-parting", "▸"), { title: say("same_until"), role: "img", "aria-label": say("same_until") }));
    text.replaceChildren(...nodes);
  }

  handle.disabled = true;
  handle.addEventListener("input", show);
  show();
  /** From strict to lenient, stop by stop; whoever takes the handle has it. */
  async function reveal(moves) {
    handle.disabled = false;
    let taken = false;
    handle.addEventListener("pointerdown", () => (taken = true));
    handle.addEventListener("keydown", () => (taken = true));
    for (let stop = moves ? 1 : runs.length - 1; stop < runs.length && !taken; stop += 1) {
      if (moves) await pause(0.7);
      if (taken) return;
      handle.value = stop;
      show();
    }
  }
  return { node, reveal };
}
