/** The text of a run, or nothing. */

import { el } from "../../shared/dom.js";
import { written } from "../../race/chips.js";

export function textPicture({ prompt, tokens }, { language }) {
  if (!tokens) return { node: null };
  const text = el("p", "sl-text", ...tokens.map((token) => written(token, token.accepted ? "kept" : "own")));
  for (const token of text.children) token.classList.add("on");
  return { node: el("figure", "sl-figure", el("p", "sl-prompt", el("span", "sl-name", language.say("prompt")), " ", el("q", "", prompt)), text) };
}
