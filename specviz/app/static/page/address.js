/**
 * The page's address carries its settings, so that a link, a reload and the way back show the same again. A query has the names
 * of specviz/app/link.py. Knows no control.
 */

/** The number in the value of a lenience track. */
const lenienceOf = (track) => JSON.parse(track).lenience;

/** The address of settings, {name in a link: value}; "panes" is JSON text, a list of panes. */
function addressOf(tab, asked) {
  const address = new URL(location.pathname, location.origin);
  const add = (name, value) => value !== null && value !== "" && address.searchParams.append(name, String(value));
  const { panes, ...settings } = asked;
  const shown = JSON.parse(panes ?? "[]");
  const methods = [asked.method, ...shown.map(({ method }) => method)];
  add("tab", tab);
  for (const [name, value] of Object.entries(settings)) {
    if (name === "rule" && !methods.includes("own_rule")) continue; // it is not in use
    add(name, name === "lenience" ? lenienceOf(value) : value);
  }
  for (const { method, lenience, draft_length, pair } of shown) add("pane", [method, lenience, draft_length, pair].filter((part) => part != null).join(":"));
  return address.href;
}

/** Copy a link to these settings; an update for the box that shows it. */
export async function copyLink(tab, asked) {
  const address = addressOf(tab, asked);
  let label = "Link, copied";
  try {
    await navigator.clipboard.writeText(address);
  } catch {
    label = "Link: copy it from here, the browser does not let this page do it";
  }
  return { __type__: "update", value: address, label, visible: true };
}

let shown = location.search;

/** Let the address name these settings from now on. */
export function keepAddress(tab, asked) {
  const address = addressOf(tab, asked);
  if (address !== location.href) history.pushState(null, "", address);
  shown = location.search;
}

// The way back leads to other settings: the server sets them, as it does for any link.
addEventListener("popstate", () => location.search !== shown && location.reload());

/** The page has been opened: where its address names settings and no recorded run, one key is enough to run. */
export function opened() {
  const query = new URLSearchParams(location.search);
  if (query.has("pane")) document.getElementById("compare-run")?.focus();
  else if ((query.has("method") || query.has("prompt")) && !query.has("run")) document.getElementById("run")?.focus();
}
