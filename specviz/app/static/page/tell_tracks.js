/* Tells the lenience tracks of GROUP, those to come too, what NAME is now: the pair or the temperature. */
(value) => {
  const known = ((window.specvizAround ??= {})[GROUP] ??= {});
  known[NAME] = value;
  document.dispatchEvent(new CustomEvent("specviz-around", { detail: GROUP }));
}
