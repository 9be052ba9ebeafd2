/* Asks the view of a run to save it as WHAT: "picture", "page" or "trace". */
() => { document.dispatchEvent(new CustomEvent("specviz-save", { detail: WHAT })); }
