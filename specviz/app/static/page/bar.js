/** The bar's two switches: larger text, for a projector, and light or dark. The browser remembers both; head.js applies them first. */

import { remember } from "../shared/storage.js";
import { followTheme } from "../shared/theme.js";

/** Gradio sets the height of a text area when its text changes, not when the type does. */
function fitTextAreas() {
  for (const area of document.querySelectorAll(".gradio-container textarea")) {
    if (area.clientHeight === 0) continue;
    const most = parseFloat(area.style.maxHeight) || Infinity;
    area.style.height = "auto";
    area.style.height = Math.min(area.scrollHeight + area.offsetHeight - area.clientHeight, most) + "px";
  }
}

/** On a narrow screen the places are a line that scrolls. */
function keepPlaceInSight() {
  const places = document.querySelector("#tabs > .tab-wrapper > [role=tablist]");
  if (!places) return;
  const show = () => places.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  new MutationObserver(show).observe(places, { attributes: true, subtree: true, attributeFilter: ["aria-selected"] });
}

export function mount(element) {
  const host = element.querySelector(".specviz");
  const large = host.querySelector("#large-type");
  const theme = host.querySelector("#theme-switch");
  const root = document.documentElement;
  const sayLarge = () => large.setAttribute("aria-pressed", String(root.classList.contains("specviz-large")));
  large.addEventListener("click", () => {
    remember("specviz-large", root.classList.toggle("specviz-large") ? "1" : null);
    sayLarge();
    fitTextAreas();
  });
  theme.addEventListener("click", () => {
    window.specvizTheme = host.dataset.theme === "dark" ? "light" : "dark";
    remember("specviz-theme", window.specvizTheme);
    document.body.classList.toggle("dark", window.specvizTheme === "dark");
  });
  followTheme(host, () => {
    theme.textContent = host.dataset.theme === "dark" ? "Light" : "Dark";
  });
  sayLarge();
  keepPlaceInSight();
}
