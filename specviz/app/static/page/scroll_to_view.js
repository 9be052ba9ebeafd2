/* Brings the element with the id NAME into sight: on a phone a view is below the controls. */
() => {
  const view = document.getElementById(NAME);
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  if (innerWidth < 768) view.scrollIntoView({ behavior: calm ? "auto" : "smooth" });
}
