/*
 * Makes a link of what the controls show, and copies it. TAB and NAMES are filled in; after the settings may come the number
 * of panes, and three values for each of them.
 */
async (...values) => {
  const address = new URL(location.pathname, location.origin);
  const add = (name, value) => value !== null && value !== "" && address.searchParams.append(name, String(value));
  add("tab", TAB);
  const names = NAMES;
  names.forEach((name, at) => add(name, values[at]));
  const [count, ...panes] = values.slice(names.length);
  for (let at = 0; at < count; at += 1) add("pane", panes.slice(3 * at, 3 * at + 3).join(":"));
  let label = "Link, copied";
  try {
    await navigator.clipboard.writeText(address.href);
  } catch {
    label = "Link: copy it from here, the browser does not let this page do it";
  }
  return { __type__: "update", value: address.href, label, visible: true };
}
