/** Parts that several pictures share: the text before a position, a bar with its label, and whether animation is allowed. */

import { el, string } from "../../shared/dom.js";

const calm = matchMedia("(prefers-reduced-motion: reduce)");
export const mayMove = () => !calm.matches;

/** The prompt, and the end of the text before the place; `more` are the chips at the place. */
export function context({ prompt, before, cut }, { say }, ...more) {
  const text = before ? (cut ? "… " : "") + before : "";
  const start = el("span", "sl-begins", say("begins") + ": ");
  return el("div", "sl-context",
    el("p", "sl-prompt", el("span", "sl-name", say("prompt")), " ", el("q", "", string(prompt))),
    el("p", "sl-before", text || start, ...more));
}

/** A row: a name, a bar of a share in 0..1, and the number beside it. */
export function row(className, name, share, words) {
  const fill = el("i", "sl-fill");
  fill.style.width = 100 * Math.min(1, Math.max(0, share)) + "%";
  return el("div", "sl-row " + className, el("span", "sl-row-name", ...[name].flat()), el("span", "sl-bar", fill), el("b", "sl-row-number", words));
}

/** Waits for so many seconds of the show, or not at all where nothing may move. */
export const pause = (seconds) => new Promise((done) => setTimeout(done, mayMove() ? 1000 * seconds : 0));
