/**
 * The actions on a whole run. Knows which run is shown; `save.js` does the saving.
 */

import { savePage, saveTrace } from "./save.js";

export function createFooter(host, { methods, sources, yardstick, shareCard, isShown }) {
  const section = host.querySelector(".sv-footer");
  const note = host.querySelector(".sv-saved");
  let run, ended, value;

  function reset() {
    [run, ended, value] = [null, false, () => ""];
    section.hidden = true;
    note.textContent = "";
  }

  /** Take in a line of the trace; there is something to save once the run has ended. */
  function add(entry) {
    if (entry?.type === "run") run = entry;
    else if (entry?.type === "end") ended = true;
    section.hidden = !(isShown && ended);
  }

  /** Remember how to get the whole trace. */
  function keep(whole) {
    value = whole;
  }

  const ways = { picture: () => shareCard(), page: () => savePage(run, value(), yardstick(), methods, sources), trace: () => saveTrace(run, value()) };

  /** Save the run as a "picture", a "page" or a "trace". */
  async function save(what) {
    if (!ended) {
      note.textContent = "There is no whole run to save yet.";
      return;
    }
    try {
      note.textContent = "Saving …";
      await ways[what]();
      note.textContent = "Saved.";
    } catch {
      note.textContent = "It could not be saved: the server with the page’s files does not answer.";
    }
  }

  for (const [name, what] of Object.entries({ "share-card": "picture", "save-page": "page", "save-trace": "trace" })) {
    const button = section.querySelector('[data-testid="' + name + '"]');
    button.hidden = what === "page" && sources === null;
    button.addEventListener("click", () => save(what));
  }
  return { reset, add, keep, save };
}
