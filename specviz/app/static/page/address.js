/**
 * The page's address names its view, so that a link, a reload, Back and Forward show it again. A query has the names of
 * specviz/app/link.py, and the server reads it. A view belongs to a place: a tab, or a tab within the tab Learn. Knows no control.
 */

import { attributes, el } from "../shared/dom.js";

const SHOWN = 4000; // milliseconds that a message stays
const DRAWN = 50; // milliseconds until one looks again whether a tab is drawn
const SELECTED = "[role=tab][aria-selected=true]";

const views = {}; // by place: the query of the view that it holds
let current = location.search;
const asked = [{}]; // visits that the server has not answered; the first is the page's opening
let send = () => location.reload(); // asks the server to show a query; what the place holds is shown as it is
let say = () => {};

const selected = (tabs) => document.querySelector(tabs + " > .tab-wrapper " + SELECTED)?.dataset.tabId; // gradio 6.31
const placeOf = (tab) => (tab === "learn" ? selected("#learn-tabs") ?? "lessons" : tab ?? "idea");

/** Let the address name this view of a place from now on; Back leads to the one before if `isNew`. */
export function write(place, query, isNew = true) {
  if (!history.state?.place) {
    const here = placeOf(selected("#tabs"));
    views[here] ??= location.search;
    history.replaceState({ place: here }, "");
  }
  views[place] = query;
  if (query === location.search) return;
  history[isNew ? "pushState" : "replaceState"]({ place }, "", location.pathname + query);
  current = location.search;
}

/** Go to a view, given by a query that names its tab; a text field that the selector names is selected there. */
export function go(query, field = "") {
  write(placeOf(new URLSearchParams(query).get("tab")), query);
  visit({ query, field });
}

/** Visits are answered one at a time, so that none overtakes another. */
function visit(view) {
  asked.push(view);
  if (asked.length === 1) send(view);
}

/** The view of the oldest visit has come. */
export function opened() {
  const { field } = asked.shift() ?? {};
  if (asked.length) return send(asked[0]);
  // Where the address names settings and no recorded run, one key is enough to run.
  const query = new URLSearchParams(location.search);
  if (field) return selectField(field);
  if (query.has("pane")) document.getElementById("compare-run")?.focus();
  else if ((query.has("method") || query.has("prompt")) && !query.has("run")) document.getElementById("run")?.focus();
}

addEventListener("popstate", ({ state }) => {
  if (location.search === current) return;
  current = location.search;
  const place = state?.place;
  const isHeld = place !== undefined && views[place] === current;
  if (place) views[place] = current;
  visit({ query: current, held: isHeld });
});

// Whoever chooses a tab comes back to the view that it holds.
addEventListener("click", ({ target }) => {
  const tab = target.closest?.("[role=tab]")?.dataset.tabId;
  if (!tab) return;
  const place = placeOf(tab);
  if (place !== placeOf(selected("#tabs"))) write(place, views[place] ?? "?tab=" + place);
}, true);

// ---- settings

/** The number in the value of a lenience track. */
const lenienceOf = (track) => JSON.parse(track).lenience;

/** The query of settings, {name in a link: value}; "panes" is JSON text, a list of panes. */
function queryOf(tab, asked) {
  const query = new URLSearchParams();
  const add = (name, value) => value !== null && value !== "" && query.append(name, String(value));
  const { panes, ...settings } = asked;
  const shown = JSON.parse(panes ?? "[]");
  const methods = [asked.method, ...shown.map(({ method }) => method)];
  add("tab", tab);
  for (const [name, value] of Object.entries(settings)) {
    if (name === "rule" && !methods.includes("own_rule")) continue; // it is not in use
    add(name, name === "lenience" ? lenienceOf(value) : value);
  }
  for (const { method, lenience, draft_length, pair } of shown) add("pane", [method, lenience, draft_length, pair].filter((part) => part != null).join(":"));
  return "?" + query;
}

/** Let the address name these settings from now on. */
export const keepAddress = (tab, asked) => write(tab, queryOf(tab, asked));

/** Copy a link to these settings. */
export async function copyLink(tab, asked) {
  const link = location.origin + location.pathname + queryOf(tab, asked);
  try {
    await navigator.clipboard.writeText(link);
    say("Link copied");
  } catch {
    say("This browser lets no page copy. The link:", link);
  }
}

/** Select a text field as soon as its tab is drawn. */
function selectField(selector, tries = 100) {
  const field = document.querySelector(selector);
  if (!field?.offsetParent) return tries && setTimeout(selectField, DRAWN, selector, tries - 1);
  field.focus();
  field.select();
}

/** Mount the component: what this module says, over the page, and the event that asks for a view. */
export function mount(element, { trigger }) {
  const host = element.querySelector(".specviz");
  let timer = 0;
  send = ({ query, held = false }) => trigger("visit", { query, held });
  const close = () => host.replaceChildren();
  say = (text, link) => {
    clearTimeout(timer);
    host.replaceChildren(el("p", "sa-message", el("span", "", text)));
    if (!link) {
      timer = setTimeout(close, SHOWN);
      return;
    }
    const field = attributes(el("input"), { readonly: "", "aria-label": "Link", value: link });
    const button = attributes(el("button", "sv-button", "Close"), { type: "button" });
    button.addEventListener("click", close);
    host.firstChild.append(field, button);
    field.select();
  };
}
