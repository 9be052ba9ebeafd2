/** Recorded comparisons to choose from, and the settings of the panes as a value for the server. Draws no pane. */

import { attributes, el, list } from "../shared/dom.js";
import { followTheme } from "../shared/theme.js";
import { chosen } from "./chosen.js";

/** Mount the component in gradio’s element. */
export function mount(element, { props, trigger, watch }) {
  const host = element.querySelector(".sp-presets");
  const presets = list(props.presets);
  const ask = (key) => trigger("select", { index: key, value: key });
  const buttons = presets.map(({ key, title }) => {
    const button = attributes(el("button", "sv-button sp-preset", title), { type: "button", "data-key": key });
    button.addEventListener("click", () => ask(key));
    return button;
  });
  const menu = attributes(el("select", "sp-menu"), { "aria-label": "Recorded comparison" });
  const own = attributes(el("option", "", "Your own panes"), { value: "" });
  menu.append(...presets.map(({ key, title }) => attributes(el("option", "", title), { value: key })), own);
  menu.addEventListener("change", () => menu.value && ask(menu.value));
  host.setAttribute("role", "group");
  host.setAttribute("aria-label", "Recorded comparisons");
  host.append(...buttons, menu);
  host.hidden = presets.length === 0;

  const read = () => {
    try {
      chosen.set(list(JSON.parse(props.value)));
    } catch { /* no panes: those before stay */ }
  };
  chosen.listen((what) => {
    if (what === "shown") {
      for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.key === chosen.shown()));
      menu.value = chosen.shown() ?? "";
      own.hidden = chosen.shown() !== null;
    } else if (what === "input") {
      props.value = JSON.stringify(chosen.panes());
      trigger("input");
    }
  });
  watch("value", () => props.value !== JSON.stringify(chosen.panes()) && read());
  read();
  chosen.show(chosen.shown());
  followTheme(host);
}
