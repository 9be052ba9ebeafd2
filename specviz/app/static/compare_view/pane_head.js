/**
 * The head of a pane: a button that shows method, lenience and pair, and the panel in which they are chosen. Knows nothing of runs.
 *
 * createHead({methods, menu, pairs, scale}) -> {name, panel, show}
 *   methods   as for the view
 *   menu      [heading, names of methods] for each group of the menu
 *   pairs     () -> {titles, offered, shared}: titles by key, keys of available pairs, key of the pair of all panes
 *   scale     (pane) -> the scale of its lenience, see lenience_track/scale.js
 *   onChange  called with the changed pane; onAdd and onRemove without arguments
 */

import { shortLenience } from "../lenience_track/scale.js";
import { attributes, el, string } from "../shared/dom.js";
import { methodMark } from "../shared/method_mark.js";

const MARGIN = 8; // px between the panel and the edges of the window

let last = 0;

const option = (value, words, selected) => Object.assign(el("option", "", words), { value, selected });

function labelled(words, control) {
  const label = el("label", "sc-field", el("span", "", words), control);
  return label;
}

const takesLenience = (method) => Boolean(method?.range) && method.range[0] < method.range[1];

function titleOf(pane, methods) {
  if (pane.method === "speed") return pane.lenience === 0 ? "Lossless" : "Lenient";
  return Object.hasOwn(methods, pane.method) ? methods[pane.method].title : string(pane.method);
}

/** What a pane's method and lenience are called. */
export function paneName(pane, methods) {
  const title = titleOf(pane, methods);
  return title + (title !== "Lossless" && takesLenience(methods[pane.method]) ? " α " + pane.lenience : "");
}

/** Names as short as a phone's tabs: with the lenience, else the pair, only where panes of one method differ in it. `pairs` are titles. */
export function shortNames(panes, methods, pairs) {
  const titles = panes.map((pane) => titleOf(pane, methods));
  const words = pairs.map((pair) => pair.split(" "));
  return panes.map((pane, at) => {
    const places = panes.map((_, place) => place).filter((place) => titles[place] === titles[at]);
    const differ = (of) => new Set(places.map(of)).size > 1;
    if (differ((place) => panes[place].lenience)) return (places.length < panes.length ? titles[at] + " " : "") + "α " + pane.lenience;
    if (!differ((place) => pairs[place])) return titles[at];
    const own = words[at].findIndex((word, n) => places.some((place) => words[place][n] !== word));
    return words[at].slice(own).join(" ");
  });
}

export function createHead({ methods, menu, pairs, scale, onChange, onAdd, onRemove }) {
  const name = attributes(el("button", "sc-name"), { type: "button", "aria-haspopup": "dialog" });
  const panel = attributes(el("div", "sc-settings"), { id: "specviz-pane-" + (last += 1), popover: "auto", role: "dialog" });
  const method = el("select", "sc-method");
  const about = el("p", "sc-about");
  const range = attributes(el("input", "sc-range"), { type: "range", min: "0", max: "1", step: "0.001" });
  const number = el("output", "sc-number");
  const lenience = labelled("Lenience α", el("span", "sc-slide", range, number));
  const ends = el("p", "sc-ends", el("span"), el("span"));
  const pair = el("select", "sc-pair");
  const add = attributes(el("button", "sv-button", "+ Add a pane"), { type: "button" });
  const remove = attributes(el("button", "sv-button", "× Remove this pane"), { type: "button" });
  panel.append(labelled("Method", method), about, lenience, ends, labelled("Model pair", pair), el("div", "sc-more-panes", add, remove));
  name.setAttribute("popovertarget", panel.id);
  name.setAttribute("aria-controls", panel.id);
  let pane = {};

  function fill() {
    const own = methods[pane.method];
    const { titles, offered, shared } = pairs();
    const one = (key) => option(key, methods[key].label, key === pane.method);
    method.replaceChildren(...menu.map(([label, names]) => Object.assign(el("optgroup", "", ...names.map(one)), { label })));
    about.textContent = string(own?.sentence);
    lenience.hidden = ends.hidden = !takesLenience(own);
    if (!lenience.hidden) {
      range.value = String(scale(pane).position(pane.lenience));
      range.setAttribute("aria-valuetext", String(pane.lenience));
      number.textContent = String(pane.lenience);
      own.ends.forEach((words, at) => (ends.children[at].textContent = words));
    }
    const keys = [...new Set([...offered, ...(pane.pair ? [pane.pair] : [])])];
    pair.replaceChildren(option("", "As in all panes: " + (titles[shared] ?? shared), pane.pair === null),
      ...keys.filter((key) => key !== shared).map((key) => option(key, titles[key] ?? key, key === pane.pair)));
  }

  /** Below its button, inside the window. */
  function place() {
    const { left, bottom } = name.getBoundingClientRect();
    const { offsetWidth: wide, offsetHeight: high } = panel;
    panel.style.left = Math.max(MARGIN, Math.min(left, innerWidth - wide - MARGIN)) + "px";
    panel.style.top = Math.max(MARGIN, Math.min(bottom + 4, innerHeight - high - MARGIN)) + "px";
  }

  const change = (what) => {
    pane = { ...pane, ...what };
    onChange(pane);
    fill();
  };

  panel.addEventListener("toggle", ({ newState }) => {
    name.setAttribute("aria-expanded", String(newState === "open"));
    if (newState !== "open") return;
    fill();
    place();
    method.focus();
  });
  method.addEventListener("change", () => change({ method: method.value, lenience: methods[method.value].default_lenience }));
  range.addEventListener("input", () => change({ lenience: shortLenience(scale(pane), range.valueAsNumber) }));
  pair.addEventListener("change", () => change({ pair: pair.value || null }));
  for (const [button, call] of [[add, onAdd], [remove, onRemove]]) {
    button.addEventListener("click", () => {
      panel.hidePopover();
      call();
    });
  }

  /** Show a pane's settings; `words` are the pair, where the panes differ in it, and `number` the place of the pane. */
  function show(next, { number: at, note, canAdd, canRemove }) {
    pane = next;
    const words = paneName(pane, methods);
    name.replaceChildren(methodMark(pane.method, methods) ?? "", el("b", "", words), el("span", "sc-caret", "▾"), note ? el("small", "", note) : "");
    name.setAttribute("aria-label", "Pane " + at + ": " + words + (note ? ", " + note : "") + ". Change it");
    panel.setAttribute("aria-label", "Settings of pane " + at);
    add.hidden = !canAdd;
    remove.hidden = !canRemove;
    if (panel.matches(":popover-open")) fill();
  }

  return { name, panel, show };
}
