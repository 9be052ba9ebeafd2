/**
 * Nodes, numbers and words: writes values of a trace for people. All text in a trace is untrusted, so nodes are built only
 * from text, never from markup. Knows nothing of runs or components.
 */

export const DASH = "–";

/** A new element; strings among the children become text nodes, missing ones are left out. */
export function el(tag, className, ...children) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.append(...children.filter((child) => child || child === ""));
  return node;
}

/** The node, with these attributes set. */
export function attributes(node, values) {
  for (const [name, value] of Object.entries(values)) node.setAttribute(name, value);
  return node;
}

/** A new element of a drawing, with these attributes. */
export const shape = (tag, values = {}) => attributes(document.createElementNS("http://www.w3.org/2000/svg", tag), values);

/** The value if it is a finite number, else the fallback. */
export const finite = (value, fallback = 0) => (Number.isFinite(value) ? value : fallback);
export const list = (value) => (Array.isArray(value) ? value : []);
export const string = (value) => (typeof value === "string" ? value : "");
export const count = (n, noun) => n + " " + noun + (n === 1 ? "" : "s");
/** What a run without tokens does; its position in the queue is 0 once it is being served. */
export const waitingWords = (position) => (finite(position) > 0 ? "waiting, number " + position + " in the queue" : "reading the prompt");
export const isExamined = (token) => Number.isFinite(token.acceptance) && Number.isFinite(token.coin);
/** A round's draft length K. Traces before version 4 lack it. Bounded by the proposals, since a foreign trace may claim any number. */
export function draftLength(round) {
  const recorded = list(round.proposals).length;
  return Math.min(finite(round.draft_length, recorded), recorded + 1);
}
export const signed = (value, text) => (value < 0 ? "−" : "") + text;

/** A probability or a score with about two significant digits. */
export function number(value) {
  if (!Number.isFinite(value)) return DASH;
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size < 0.0001) return signed(value, size.toExponential(1));
  return signed(value, size < 0.1 ? size.toPrecision(size < 0.001 ? 1 : 2) : size.toFixed(2));
}

/** Two numbers that are compared, with as many digits as it takes to tell them apart. */
export function compared(a, b) {
  let texts = [number(a), number(b)];
  for (let digits = 3; a !== b && texts[0] === texts[1] && digits < 10; digits += 1) {
    texts = [a, b].map((value) => (Number.isFinite(value) ? signed(value, Math.abs(value).toFixed(digits)) : DASH));
  }
  return texts;
}

/** Text with its white space made visible. */
export const visible = (text) =>
  string(text).replace(/ /g, "␣").replace(/\n/g, "⏎").replace(/\r/g, "␍").replace(/\t/g, "⇥");

/** The name of a token, a draft or a candidate on its own; a piece of a character is named by its id. */
export const nameOf = (token) => visible(token?.label || token?.text) || "#" + (token?.id ?? "?");
export const quoted = (token) => el("bdi", "sv-name", nameOf(token));

/** A token as a screen reader should read it. */
export function spoken(token) {
  const text = string(token.label || token.text);
  if (text === "") return "part of a character";
  return text.trim() || (text.includes("\n") ? "line break" : "space");
}

/** A probability as people say it: never in exponents. */
export function percent(value) {
  if (!Number.isFinite(value)) return DASH;
  const size = 100 * Math.abs(value);
  if (size === 0) return "0 %";
  if (size < 0.1) return "under 0.1 %";
  if (size >= 99.95) return size >= 100 ? "100 %" : "nearly 100 %";
  return (size < 10 || size > 99 ? Number(size.toFixed(1)) : Math.round(size)) + " %";
}

/** Two probabilities that are compared, with as many digits as it takes to tell them apart. */
export function percents(a, b) {
  let texts = [percent(a), percent(b)];
  for (let digits = 1; a !== b && texts[0] === texts[1] && digits < 8; digits += 1) {
    texts = [a, b].map((value) => (Number.isFinite(value) ? (100 * value).toFixed(digits) + " %" : DASH));
  }
  return texts;
}

/** A token as a chip; `fate` is "kept", "own" (the verifier's), "out" (rejected), "unseen" or "" (a draft token). */
export const chip = (token, fate = "") => el("span", "sv-chip " + fate, el("bdi", "", nameOf(token)));

/** Whether a click on a link asks the browser for another tab or window. */
export const opensElsewhere = (event) => event.ctrlKey || event.metaKey || event.shiftKey;
