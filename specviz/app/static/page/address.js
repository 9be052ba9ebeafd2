/**
 * The page's address carries its settings, so that a link, a reload and the way back show the same again. A query has the names
 * of specviz/app/link.py. Knows no control.
 */

/** The number in the value of a lenience track. */
const lenienceOf = (track) => JSON.parse(track).lenience;

/** The address of these settings; after the named values may come the number of panes, and three values for each of them. */
function addressOf(tab, names, values) {
  const address = new URL(location.pathname, location.origin);
  const add = (name, value) => value !== null && value !== "" && address.searchParams.append(name, String(value));
  add("tab", tab);
  const [count, ...panes] = values.slice(names.length);
  const methods = names.includes("method") ? [values[names.indexOf("method")]] : panes.slice(0, 3 * count).filter((_, at) => at % 3 === 0);
  names.forEach((name, at) => {
    if (name === "rule" && !methods.includes("own_rule")) return; // it is not in use
    add(name, name === "lenience" ? lenienceOf(values[at]) : values[at]);
  });
  for (let at = 0; at < count; at += 1) {
    const [method, track, draftLength] = panes.slice(3 * at, 3 * at + 3);
    add("pane", [method, lenienceOf(track), draftLength].join(":"));
  }
  return address.href;
}

/** Copy a link to these settings; an update for the box that shows it. */
export async function copyLink(tab, names, values) {
  const address = addressOf(tab, names, values);
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
export function keepAddress(tab, names, values) {
  const address = addressOf(tab, names, values);
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
