/**
 * What if: another lenience or method for a finished run. Marks the first token that would change, and says so in a
 * sentence. The form around the view sets both; without a form, the bar has a slider. Reads what was recorded; writes no branch.
 */

import { list, string } from "../shared/dom.js";
import { changeSentence, firstChange, tellsChange } from "./what_if.js";

const LOOKS = ["sw-beyond", "sw-turned", "is-kept", "is-rejected", "is-redrawn"];

/**
 * createForkBar(section, words, {text, methods, asks, form, onTouch, onWish, onRest}) -> see the returned object
 *   section  holds the slider of its own
 *   words    where the sentence goes
 *   text     the element of the run's tokens and rejected drafts
 *   asks     whether there is somebody who can write what the record does not tell
 *   onTouch  called before anything changes, as the run must be shown whole then
 *   onWish   called with (wish, found): {method, lenience}; the first token that it changes, {index, change}, or null
 *   onRest   called when the hand has let go
 */
export function createForkBar(section, words, { text, methods, asks, form, onTouch, onWish, onRest }) {
  const slider = section.querySelector("input");
  let run, ended, items, wish;

  function reset() {
    [run, ended, items, wish] = [{}, false, [], null];
    section.hidden = true;
    words.replaceChildren();
  }

  function add(entry) {
    if (entry?.type === "run") run = entry;
    else if (entry?.type === "end") ended = true;
  }

  const known = (name) => (Object.hasOwn(methods, name) ? methods[name] : null);
  const own = () => ({ method: run.method, lenience: run.lenience });

  /** Leniences that are offered of the run's method; empty where it has none. */
  function offered() {
    const [low, high] = list(known(run.method)?.range);
    return low < high ? [Math.min(low, run.lenience), Math.max(high, run.lenience)] : [];
  }

  /** Ask about these tokens, a whole run's. */
  function ready(shown) {
    clear();
    const sound = ended && shown.length > 0 && known(run.method) !== null && Number.isFinite(run.lenience);
    items = sound && (asks || tellsChange(shown, run)) ? shown : [];
    wish = own();
    if (items.length === 0) return;
    const range = offered();
    if (form === null && range.length > 0) {
      section.hidden = false;
      [slider.min, slider.max] = range.map(String);
      slider.step = String((range[1] - range[0]) / 100);
      slider.value = String(run.lenience);
    }
    const chosen = form?.chosen();
    if (chosen) ask(chosen);
  }

  /** The run's own settings again, without words. */
  function back() {
    move(own());
    words.replaceChildren();
  }

  const draftOf = (index) => text.querySelector('.sv-draft[data-for="' + index + '"]');

  function clear() {
    for (const node of text.querySelectorAll(".sw-beyond, .sw-turned")) node.classList.remove(...LOOKS);
  }

  /** Show the wish in the text and in words; the first token that it changes. */
  function show() {
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
    say(...changeSentence(items, run, wish, found, offered(), wish.method === run.method ? "" : string(known(wish.method)?.title)));
    return found;
  }

  function say(...nodes) {
    words.replaceChildren(...nodes);
  }

  /** Somebody asks for a method and a lenience. */
  function ask({ method, lenience, rests = true }) {
    if (items.length === 0 || !known(method) || known(method).takes_rule || !Number.isFinite(lenience)) return;
    if (wish.method !== method || wish.lenience !== lenience) {
      onTouch();
      wish = { method, lenience };
      onWish(wish, show());
    }
    if (rests) onRest();
  }

  for (const kind of ["input", "change"]) {
    slider.addEventListener(kind, () => ask({ method: run.method, lenience: slider.valueAsNumber, rests: kind === "change" }));
  }
  form?.onAsk((asked) => asked.chosen && ask(asked)); // a form that a link fills asks for nothing

  /** Move to a wish that nobody asked for; the controls follow. */
  function move(to) {
    if (items.length === 0) return;
    const moved = wish.method !== to.method || wish.lenience !== to.lenience;
    wish = to;
    show();
    slider.value = String(to.lenience);
    if (moved) form?.fill(to);
  }

  reset();
  return { reset, add, ready, back, say, move, shown: () => wish ?? own() };
}
