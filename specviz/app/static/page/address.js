/**
 * The page's address names its view, so that a link, a reload, Back and Forward show the view again. A query has the names in
 * specviz/app/link.py, and the server reads it. A view belongs to a place: a tab, or a tab within the tab Learn. Knows no controls.
 */

import { attributes, el } from "../shared/dom.js";

const SHOWN = 4000; // milliseconds that a message stays
const DRAWN = 50; // milliseconds until one looks again whether a tab is drawn
const LONGEST = 6000; // characters of a query: servers refuse long addresses, and gradio sends the query with every request

const selected = {}; // by tabs: the id of the selected one
const views = {}; // by place: the query of the view that it holds
let current = location.search;
let place = "idea"; // in sight
let isChosen = false; // whether the tab that is about to be selected was chosen by the visitor
const asked = [{}]; // visits that the server has not answered; the first is the page's opening
let send = () => location.reload(); // asks the server to show a query; what the place holds is shown as it is
let say = () => {};

const placeOf = (tab) => (tab === "learn" ? selected.learn ?? "lessons" : tab ?? "idea");

/** Let the address name this view of a place from now on; Back leads to the one before if `isNew`. */
export function write(next, query, isNew = true) {
  views[place] ??= location.search;
  if (!history.state?.place) history.replaceState({ place }, "");
  place = next;
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

/** The visitor has chosen a tab; `tabSelected` will tell which. */
export function tabChosen() {
  isChosen = true;
}

/** A tab is in sight, by the visitor's choice or the server's. Whoever chooses a tab comes back to the view that it holds. */
export function tabSelected(tabs, tab) {
  selected[tabs] = tab;
  const next = placeOf(selected.tabs);
  if (isChosen && next !== place) write(next, views[next] ?? "?tab=" + next);
  place = next;
  isChosen = false;
}

/** Tells the views of a place that it is to show another view: one that is asked for, or, at a visit, one that was left. */
const tell = (isVisit) => document.dispatchEvent(new CustomEvent("specviz-view", { detail: { place, isVisit } }));

/** Visits are answered one at a time, so that none overtakes another. */
function visit(view) {
  if (!view.held) tell(true);
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
  const isHeld = state?.place !== undefined && views[state.place] === current;
  if (state?.place) views[place = state.place] = current;
  visit({ query: current, held: isHeld });
});

// ---- settings

/** The number in the value of a lenience track. */
const lenienceOf = (track) => JSON.parse(track).lenience;

/** The query of settings, {name in a link: value}; "panes" is JSON text, a list of panes. Without the prompt if that would be too long. */
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
  if (String(query).length > LONGEST) query.delete("prompt");
  return "?" + query;
}

/** Let the address name these settings from now on. */
export function keepAddress(tab, asked) {
  write(tab, queryOf(tab, asked));
  tell(false);
}

/** Copy a link to these settings. */
export async function copyLink(tab, asked) {
  const query = queryOf(tab, asked);
  const link = location.origin + location.pathname + query;
  try {
    await navigator.clipboard.writeText(link);
    say(asked.prompt && !new URLSearchParams(query).has("prompt") ? "Link copied, without the prompt: it is too long for a link" : "Link copied");
  } catch {
    say("This browser does not let pages copy. The link:", link);
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
