/**
 * Stores the texts that were written on this page, by its address: Back and Forward show them again, and as long as the browser's tab
 * is open, a reload shows the last one. Of the format it knows only how it marks a recorded and a failed text.
 */

import { recall, remember } from "./storage.js";

const MOST = 8;
const STORED = /^\{"type": ?"(recorded|error)"/m;

/** `name` is that under which the tab keeps the last one; `place` is the view's, see page/address.js; `onVisit` is called when it is to show another view. */
export function createShelf(name, place, onVisit = () => {}) {
  const here = () => location.pathname + location.search;
  const last = JSON.parse(recall(name, "sessionStorage")) ?? {};
  const made = new Map(last.address ? [[last.address, last.value]] : []);
  let home = here(); // the address of what is being written
  let isLeft = false; // whether a run that still writes belongs to another view
  document.addEventListener("specviz-view", ({ detail }) => {
    if (detail.place !== place) return;
    home = here();
    isLeft = detail.isVisit;
    if (isLeft) onVisit();
  });
  return {
    /** What was written at the page's address; "" where nothing was. */
    get: () => made.get(here()) ?? "",
    keep(value) {
      made.delete(home);
      made.set(home, value);
      if (made.size > MOST) made.delete(made.keys().next().value);
      remember(name, JSON.stringify({ address: home, value }), "sessionStorage");
    },
    /** Whether a value is to be shown: a visit brings nothing that is being written. */
    takes: (value) => !isLeft || value === "" || STORED.test(value),
  };
}
