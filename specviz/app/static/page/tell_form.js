/* Tells the page the current settings NAMES of the form GROUP, and stores them for components that are created later. */
(...values) => {
  (window.specvizForm ??= {})[GROUP] = Object.fromEntries(NAMES.map((name, at) => [name, values[at]]));
  document.dispatchEvent(new CustomEvent("specviz-form", { detail: GROUP }));
}
