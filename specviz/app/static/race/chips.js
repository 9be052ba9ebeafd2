/** Tokens as chips and as text, built from text only. Knows nothing of a race. */

import { el, string } from "../shared/dom.js";

/** A token's text with its white space in sight but faint. */
function glyphs(text) {
  return string(text)
    .split(/(\n|^ +)/u)
    .filter((part) => part)
    .map((part) => (part === "\n" ? el("span", "faint", "↵") : /^ +$/u.test(part) ? el("span", "faint", part.replace(/ /gu, "·")) : part));
}

/** A chip; `fate` is kept, own, rejected, unseen or "" for a draft token that nobody has looked at yet. */
export const chip = (text, fate = "") => el("span", ("sr-chip " + fate).trim(), ...(string(text) ? glyphs(text) : ["…"]));

/** A token in a text that is laid out from the first, and seen only once it is written. */
export function written(token, fate) {
  const blank = string(token.text).trim() === "";
  const mark = blank && fate === "own" && token.text ? token.text.replace(/\n/u, "↵\n") : token.text;
  return el("span", "sr-token " + fate + (blank && mark === token.text ? " blank" : ""), el("span", "", mark));
}
