/* A run has ended: Run can be pressed, and Stop cannot. Told here, since a server that writes other texts need not be asked, and to the document. */
() => {
  document.dispatchEvent(new Event("specviz-run-ended"));
  return [true, false].map((interactive) => ({ __type__: "update", interactive }));
}
