/** A range input that says its value and what its ends mean. */

import { DASH, attributes, el, signed } from "./dom.js";

/** A range input with its name, its value and what its ends mean. `set` takes {min, max, step, value, ends, disabled}. */
export function rangeControl(name, key, onInput) {
  const input = attributes(el("input", "sp-range"), { type: "range", "aria-label": name, "data-control": key });
  const shown = el("span", "sp-value");
  const low = el("span", "");
  const high = el("span", "");
  const say = () => {
    shown.textContent = input.disabled ? DASH : signed(Number(input.value), String(Math.abs(input.value)));
    input.setAttribute("aria-valuetext", shown.textContent);
  };
  input.addEventListener("input", () => {
    say();
    onInput(Number(input.value));
  });
  const set = ({ ends = ["", ""], disabled = false, value, ...range }) => {
    Object.assign(input, range, { disabled });
    input.value = value;
    [low.textContent, high.textContent] = ends;
    say();
  };
  const head = el("p", "sp-control-head", el("span", "sp-control-name", name), shown);
  return { node: el("div", "sp-control", head, input, el("p", "sp-ends", low, high)), set };
}
