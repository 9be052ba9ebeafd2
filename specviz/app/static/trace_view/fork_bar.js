/**
 * The bar that asks "what if": another lenience, method or draft length for a finished run. Marks in the text where that would
 * change it first, and says so in a sentence. Knows what was recorded; writes no branch.
 */

import { list, string } from "../shared/dom.js";
import { changeSentence, firstChange, lenienceText, tellsChange } from "./what_if.js";

const MOST_DRAFTED = 16;
const LOOKS = ["sw-beyond", "sw-turned", "is-kept", "is-rejected", "is-redrawn"];

/**
 * createForkBar(section, words, {text, methods, asks, onTouch, onWish, onRest, onBack}) -> see the returned object
 *   words    where the sentence goes
 *   text     the element of the run's tokens and rejected drafts
 *   asks     whether there is somebody who can write what the record does not tell; else the bar is there only where it tells
 *   onTouch  called before anything changes, as the run must be shown whole then
 *   onWish   called with (wish, found): {method, lenience, draft_length}, none of them null; the first token that it changes,
 *            {index, change}, or null
 *   onRest   called when the hand has let go
 *   onBack   called when the run itself is wanted again
 */
export function createForkBar(section, words, { text, methods, asks, onTouch, onWish, onRest, onBack }) {
  const find = (selector) => section.querySelector(selector);
  const slider = find('input[type="range"]');
  const field = find('input[type="number"]');
  const method = find(".sw-method");
  const drafted = find(".sw-drafted");
  let run, ended, items, range, wish;

  function reset() {
    [run, ended, items, range, wish] = [{}, false, [], null, null];
    section.disabled = true;
    section.hidden = false;
    words.replaceChildren();
  }

  function add(entry) {
    if (entry?.type === "run") run = entry;
    else if (entry?.type === "end") ended = true;
  }

  const known = (name) => (Object.hasOwn(methods, name) ? methods[name] : null);

  /** Leniences that the slider offers of a method; empty where it has none. */
  function offered(name) {
    const [low, high] = list(known(name)?.range);
    if (!(low < high)) return [];
    return name === run.method ? [Math.min(low, run.lenience), Math.max(high, run.lenience)] : [low, high];
  }

  /** Ask about these tokens, a whole run's. */
  function ready(shown) {
    const sound = ended && shown.length > 0 && known(run.method) !== null && Number.isFinite(run.lenience);
    const able = sound && (asks || tellsChange(shown, run));
    clear();
    items = able ? shown : [];
    section.disabled = !able;
    section.hidden = ended && !able && !asks;
    if (!able) return;
    const titles = Object.entries(methods).filter(([name, one]) => name === run.method || !one.takes_rule);
    method.replaceChildren(...titles.map(([name, one]) => new Option(string(one.title), name)));
    const lengths = ["auto", ...Array.from({ length: MOST_DRAFTED }, (_, at) => String(at + 1))];
    drafted.replaceChildren(...lengths.map((length) => new Option("K " + length, length)));
    back();
  }

  /** The run's own settings again. */
  function back() {
    if (items.length === 0) return;
    drafted.value = run.draft_length === null ? "auto" : String(run.draft_length);
    choose(run.method, run.lenience);
    words.replaceChildren();
  }

  function choose(name, lenience) {
    method.value = name;
    range = offered(name);
    wish = { method: name, lenience, draft_length: draftLength() };
    for (const input of [slider, field]) {
      input.disabled = range.length === 0;
      [input.min, input.max] = range.map(String);
    }
    if (range.length > 0) slider.step = String((range[1] - range[0]) / 100);
    show();
  }

  const draftLength = () => (drafted.value === "auto" ? "auto" : Number(drafted.value));
  const isOther = () => wish.method !== run.method;
  const ownLength = () => (run.draft_length === null ? "auto" : run.draft_length);
  const draftOf = (index) => text.querySelector('.sv-draft[data-for="' + index + '"]');

  function clear() {
    for (const node of text.querySelectorAll(".sw-beyond, .sw-turned")) node.classList.remove(...LOOKS);
  }

  /** Show a wish: in the controls, but for the one it comes `from`, in the text and in words; the first token that it changes. */
  function show(from = null) {
    clear();
    const found = firstChange(items, run, wish);
    if (found && found.change !== "unknown") {
      for (const { node, index } of items.slice(found.index)) {
        if (index > found.index || found.change === "kept") node.classList.add("sw-beyond");
        if (index > found.index) draftOf(index)?.classList.add("sw-beyond");
      }
      const turned = found.change === "kept" ? draftOf(found.index) : items[found.index].node;
      turned?.classList.add("sw-turned", "is-" + found.change);
    }
    if (from !== field) field.value = range.length > 0 ? String(Number(wish.lenience.toFixed(4))) : "";
    if (from !== slider) slider.value = String(wish.lenience);
    slider.setAttribute("aria-valuetext", "α = " + lenienceText(wish.lenience));
    const onlyLength = !isOther() && wish.lenience === run.lenience && wish.draft_length !== ownLength();
    if (onlyLength) say("Draft length K changes the speed, never the text: with K " + (wish.draft_length === "auto" ? "automatic" : "= " + wish.draft_length) + " the same tokens come.");
    else say(...changeSentence(items, run, wish, found, range, isOther() ? string(known(wish.method)?.title) : ""));
    return found;
  }

  function say(...nodes) {
    words.replaceChildren(...nodes);
  }

  /** Somebody has changed a control. */
  function ask(changes, from, rests) {
    onTouch();
    const asked = wish.method;
    const name = changes.method ?? asked;
    if (name !== asked) {
      choose(name, name === run.method ? run.lenience : known(name).default_lenience ?? 0);
    }
    if (Object.entries(changes).some(([key, value]) => wish[key] !== value) || name !== asked) {
      wish = { ...wish, ...changes };
      onWish(wish, show(from));
    }
    if (rests) onRest();
  }

  for (const input of [slider, field]) {
    for (const kind of ["input", "change"]) {
      input.addEventListener(kind, () => {
        const lenience = Number.parseFloat(input.value);
        if (Number.isFinite(lenience)) ask({ lenience: Math.min(Math.max(lenience, range[0]), range[1]) }, input, kind === "change");
      });
    }
  }
  method.addEventListener("change", () => ask({ method: method.value }, method, true));
  drafted.addEventListener("change", () => ask({ draft_length: draftLength() }, drafted, true));
  find(".sw-reset").addEventListener("click", () => onBack());

  /** Move to a lenience that nobody asked for. */
  function move(lenience) {
    wish = { ...wish, lenience };
    show();
  }

  reset();
  return { reset, add, ready, back, say, move, focus: () => slider.focus() };
}
