/* Before anything is drawn, sets text size and theme as the reader chose on an earlier visit. A theme in the address takes precedence. */
(() => {
  const kept = (name) => {
    try { return localStorage.getItem(name); } catch { return null; }
  };
  if (kept("specviz-large")) document.documentElement.classList.add("specviz-large");
  const asked = new URLSearchParams(location.search).get("__theme");
  window.specvizTheme = asked ? null : kept("specviz-theme");
  const paint = (theme) => document.body.classList.toggle("dark", theme === "dark");
  document.addEventListener("DOMContentLoaded", () => {
    paint(asked || window.specvizTheme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
    /* gradio paints as the system does when it has come, and whenever the system changes */
    const repaint = () => window.specvizTheme && paint(window.specvizTheme);
    new MutationObserver(repaint).observe(document.body, { attributes: true, attributeFilter: ["class"] });
  });
})();
