/**
 * One language of a lesson: its words for buttons and pictures, its number format, and filling of placeholders in texts.
 * Everything becomes text nodes. Knows nothing of steps or pictures.
 *
 * createLanguage(code, words) -> {code, say(name, more), count, number, decimal, percent, percents, fill(template, values)}
 */

import { DASH, el, number, percent, percents } from "../shared/dom.js";
import { chip } from "../race/chips.js";

const PLACEHOLDER = /\{([^{}]+)\}/u;
/** What `percent` says instead of a number. */
const NEARLY = { de: [["under ", "unter "], ["nearly ", "fast "]] };

export function createLanguage(code, words) {
  const point = new Intl.NumberFormat(code).formatToParts(0.5).find((part) => part.type === "decimal")?.value ?? ".";
  const translated = (text) => (NEARLY[code] ?? []).reduce((all, [from, to]) => all.replace(from, to), text.replace(".", point).replace(" %", "\u00a0%"));
  const own = {
    code,
    number: (value) => translated(number(value)),
    decimal: (value) => (Number.isFinite(value) ? value.toFixed(value < 9.95 ? 1 : 0).replace(".", point) : DASH),
    percent: (value) => translated(percent(value)),
    percents: (a, b) => percents(a, b).map(translated),
    count: (value) => String(value),
    plain: (value) => (value < 0 ? "−" : "") + String(Math.abs(value)).replace(".", point),
    seconds: (value) => value.toFixed(value < 9.95 ? 2 : 1).replace(".", point) + "\u00a0s",
    milliseconds: (value) => (1000 * value).toFixed(value < 0.00995 ? 1 : 0).replace(".", point) + "\u00a0ms",
  };
  const written = ([type, value]) => (Object.hasOwn(own, type) ? own[type](value) : String(value));
  const pieces = (text) => text.split(/(\{[^{}]+\})/u).filter(Boolean);

  /** A method's title: most are names, and stay as they are. */
  own.title = (name, methods) => words["title_" + name] ?? methods[name].title;

  /** The word of this name, with its own placeholders filled by texts. */
  own.say = (name, more = {}) => pieces(words[name] ?? name).map((piece) => more[PLACEHOLDER.exec(piece)?.[1]] ?? piece).join("");

  /** A text as nodes: tokens as chips, numbers bold. `values` are [type, value] by name. */
  own.fill = (template, values) =>
    pieces(template).map((piece) => {
      const name = PLACEHOLDER.exec(piece)?.[1];
      const value = values[name];
      if (!value) return piece.replace(/([Kα]) = /gu, "$1\u00a0=\u00a0");
      const node = value[0] === "token" ? el("span", "sl-token", chip(value[1])) : el(value[0] === "words" ? "span" : "b", "", written(value));
      node.dataset.name = name;
      node.dataset.value = String(value[1]);
      return node;
    });
  return own;
}
