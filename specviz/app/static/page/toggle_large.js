/* Switches between larger and usual text, and remembers which. */
() => {
  const large = document.documentElement.classList.toggle("specviz-large");
  if (large) localStorage.setItem("specviz-large", "1");
  else localStorage.removeItem("specviz-large");
}
