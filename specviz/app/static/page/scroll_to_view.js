/* Brings the element with the id NAME into sight: on a phone a view is below the controls. What it is given it gives on. */
(...values) => {
  const view = document.getElementById(NAME);
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const unfit = [...document.querySelectorAll('.sr-input[aria-invalid="true"]')].some((field) => field.offsetParent);
  if (innerWidth < 768 && !unfit) view.scrollIntoView({ behavior: calm ? "auto" : "smooth" });
  return values;
}
