/**
 * The view's footer: what can be done with a whole run. Knows which run there is; saving is the business of save.
 */

import { savePage, saveTrace } from "./save.js";

export function createFooter(section, { methods, sources, yardstick, shareCard }) {
  const button = (name) => section.querySelector('[data-testid="' + name + '"]');
  const note = section.querySelector(".sv-saved");
  let run, rounds, value;

  function reset() {
    [run, rounds, value] = [{}, 0, () => ""];
    section.hidden = true;
  }

  /** Take in a line of the trace; there is something to save once the run has ended. */
  function add(entry) {
    if (entry?.type === "run") run = entry;
    else if (entry?.type === "round") rounds += 1;
    else if (entry?.type === "end") section.hidden = rounds === 0;
  }

  /** Remember how to get the whole trace. */
  function keep(whole) {
    value = whole;
  }

  async function save(how) {
    try {
      note.textContent = "Saving …";
      await how();
      note.textContent = "Saved.";
    } catch {
      note.textContent = "It could not be saved: the server with the page’s files does not answer.";
    }
  }

  button("share-card").hidden = shareCard === null;
  button("share-card").addEventListener("click", () => save(shareCard));
  button("save-trace").addEventListener("click", () => save(() => saveTrace(run, value())));
  button("save-page").hidden = sources === null;
  button("save-page").addEventListener("click", () => save(() => savePage(run, value(), yardstick(), methods, sources)));
  return { reset, add, keep };
}
