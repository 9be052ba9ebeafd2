/* When a run ends: enables Run, disables Stop and tells the document. Done here, without waiting for a busy server. */
() => {
  document.dispatchEvent(new Event("specviz-run-ended"));
  return [true, false].map((interactive) => ({ __type__: "update", interactive }));
}
