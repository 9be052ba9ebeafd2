/**
 * What was written on this page, by its address: Back and Forward lead to it, and the last one is also there after a reload, as long
 * as the tab is open. Knows no format.
 */

import { recall, remember } from "./storage.js";

const MOST = 8;

/** `name` is that under which the tab keeps the last one. */
export function createShelf(name) {
  const here = () => location.pathname + location.search;
  const last = JSON.parse(recall(name, "sessionStorage")) ?? {};
  const made = new Map(last.address ? [[last.address, last.value]] : []);
  return {
    /** What was written at the page's address; "" where nothing was. */
    get: () => made.get(here()) ?? "",
    keep(value) {
      made.delete(here());
      made.set(here(), value);
      if (made.size > MOST) made.delete(made.keys().next().value);
      remember(name, JSON.stringify({ address: here(), value }), "sessionStorage");
    },
  };
}
