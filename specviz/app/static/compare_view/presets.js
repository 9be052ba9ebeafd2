/** The buttons for recorded comparisons, and the panes' settings as a value for the server. Draws no pane. */

import { attributes, el, list } from "../shared/dom.js";
import { followTheme } from "../shared/theme.js";
import { chosen } from "./chosen.js";

/** Mount the component in gradio’s element. */
export function mount(element, { props, trigger, watch }) {
  const host = element.querySelector(".sp-presets");
  const presets = list(props.presets);
  const ask = (key) => trigger("select", { index: key, value: key });
  // Comparisons of one title share a button, which leads from each to the next.
  const titles = [...new Set(presets.map(({ title }) => title))];
  const series = titles.map((wanted) => presets.filter(({ title }) => title === wanted));
  const buttons = series.map((each) => {
    const keys = each.map(({ key }) => key);
    const button = attributes(el("button", "sv-button sp-preset"), { type: "button" });
    let next = 0;
    button.addEventListener("click", () => ask(keys[next]));
    const show = () => {
      const at = keys.indexOf(chosen.shown());
      if (at >= 0) next = (at + 1) % keys.length;
      button.textContent = each[0].title + (at >= 0 && keys.length > 1 ? ` ${at + 1} of ${keys.length} ›` : "");
      button.setAttribute("aria-pressed", String(at >= 0));
    };
    return { button, show };
  });
  const menu = attributes(el("select", "sp-menu"), { "aria-label": "Recorded comparison" });
  const own = attributes(el("option", "", "Your own panes"), { value: "" });
  const numbered = series.flatMap((each) => each.map(({ key, title }, at) => ({ key, name: title + (each.length > 1 ? ` ${at + 1}` : "") })));
  menu.append(...numbered.map(({ key, name }) => attributes(el("option", "", name), { value: key })), own);
  menu.addEventListener("change", () => menu.value && ask(menu.value));
  host.setAttribute("role", "group");
  host.setAttribute("aria-label", "Recorded comparisons");
  host.append(...buttons.map(({ button }) => button), menu);
  host.hidden = presets.length === 0;

  const read = () => {
    try {
      chosen.set(list(JSON.parse(props.value)));
    } catch { /* no panes: those before stay */ }
  };
  chosen.listen((what) => {
    if (what === "shown") {
      for (const { show } of buttons) show();
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
