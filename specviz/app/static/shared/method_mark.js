/** A method's mark in text: its symbol in its colour, as in the figures. The caller passes the method's words. */

import { attributes, el, string } from "./dom.js";

/** The mark of a method by its name, to stand before its title; null for a name that is not among the methods. */
export function methodMark(name, methods) {
  if (!Object.hasOwn(methods, name)) return null;
  const node = attributes(el("i", "sv-mark"), { "aria-hidden": "true", "data-symbol": string(methods[name].symbol) });
  node.style.color = "var(--sv-" + string(methods[name].colour) + ")";
  return node;
}
