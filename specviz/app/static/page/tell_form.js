/* Tells the page what the settings NAMES of the form GROUP are now, also those components that come later. */
(...values) => {
  (window.specvizForm ??= {})[GROUP] = Object.fromEntries(NAMES.map((name, at) => [name, values[at]]));
  document.dispatchEvent(new CustomEvent("specviz-form", { detail: GROUP }));
}
