/**
 * The settings of the panes, as their heads show them. The view changes them; another component sends them to the server.
 * A pane is {method, lenience, draft_length, pair}; a null pair means the pair of all panes.
 */

const heard = new Set();
let panes = [];
let shown = null; // key of the recorded comparison in the view

const tell = (what) => heard.forEach((listener) => listener(what));

export const chosen = {
  panes: () => panes,
  shown: () => shown,
  set(next, what = "panes") {
    panes = next;
    tell(what);
  },
  /** The view shows the recorded comparison of this key; null: another run. */
  show(key) {
    shown = key;
    tell("shown");
  },
  /** `listener` is called with "panes" after an update, "input" after a visitor's change, "shown" after `show`. */
  listen: (listener) => heard.add(listener),
};
