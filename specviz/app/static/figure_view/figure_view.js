/**
 * A figure that the server made, drawn by Plotly: follows the theme, lets its points be chosen by pointer or from a
 * list, and saves itself and its table. Knows plotly's figures; knows no sweep and no method.
 *
 * createFigureView(root, {plotly, dark, onSelect}) -> {update(value)}
 *   root      the element holding figure_view.html
 *   plotly    Plotly, or a promise of it; null or a promise of null means that there is no figure
 *   dark      colour of the figure -> the colour on a dark page
 *   onSelect  called with (index, title) when a point is chosen: its customdata and text
 *   update    takes JSON: {figure, csv, name, key, said, failure}, each of them optional. A figure with the key of the
 *             one before keeps the chosen point. "" is the empty view.
 */

import { attributes, el, list, string } from "../shared/dom.js";
import { download } from "../shared/download.js";
import { loadPlotly } from "../shared/plotly.js";
import { followTheme } from "../shared/theme.js";

const NARROW = 600; // pixels
const CHARACTERS = { circle: "●", square: "■", diamond: "◆", "triangle-up": "▲", "triangle-down": "▼", "triangle-left": "◄",
  "triangle-right": "►", "square-open": "□", "diamond-open": "◇", star: "★", "star-open": "☆" };
const SAVED_SIZE = { width: 1000, height: 640, scale: 2 };

/** The value as an object; {} where it is empty or broken. */
function readFigure(value) {
  try {
    return Object(JSON.parse(value));
  } catch {
    return {};
  }
}

function createFigureView(root, { plotly = null, dark = {}, onSelect = () => {} } = {}) {
  const host = root.matches(".sf-figure") ? root : root.querySelector(".sf-figure");
  const find = (selector) => host.querySelector(selector);
  const node = find(".sf-chart");
  const select = find("select");
  const note = find(".sv-saved");
  const swaps = new Map(Object.entries(dark));
  let Plotly, // undefined until it has come or failed
    shown = {},
    chosen = null, // the title of a point
    hidden = new Set(), // the names of what is switched off
    scheduled = false,
    wired = false;

  function update(value) {
    const figure = readFigure(value);
    if (figure.key !== shown.key) chosen = null;
    shown = figure;
    find(".sf-said").textContent = string(shown.said);
    note.textContent = "";
    listPoints();
    listEntries();
    fail();
    schedule();
  }

  /** The legend: of our own, because plotly's lies over the chart when the figure is narrow. An entry switches what it names. */
  function listEntries() {
    const entries = list(shown.figure?.data).filter((trace) => trace.name && trace.showlegend !== false);
    hidden = new Set([...hidden].filter((name) => entries.some((trace) => trace.name === name)));
    find(".sf-legend").replaceChildren(...entries.map((trace) => {
      const { color, symbol } = trace.marker ?? {};
      const light = string(color) || string(trace.line?.color);
      const sign = attributes(el("i", CHARACTERS[symbol] ? "sf-sign" : "sf-line", CHARACTERS[symbol] ?? ""), { "aria-hidden": "true" });
      sign.style.color = (host.dataset.theme === "dark" && swaps.get(light)) || light;
      const button = attributes(el("button", "sf-entry", sign, trace.name), { type: "button", "aria-pressed": String(!hidden.has(trace.name)) });
      button.addEventListener("click", () => {
        if (!hidden.delete(trace.name)) hidden.add(trace.name);
        button.setAttribute("aria-pressed", String(!hidden.has(trace.name)));
        schedule();
      });
      return button;
    }));
  }

  /** The points that can be chosen: those of the traces that have an index for each. */
  function points() {
    return list(shown.figure?.data).flatMap((trace) =>
      list(trace.customdata).map((index, at) => ({ index, title: trace.text[at], x: trace.x[at], y: trace.y[at] })));
  }

  function listPoints() {
    const options = [["choose one", ""], ...points().map(({ title }) => [title, title])];
    select.replaceChildren(...options.map(([words, value]) => {
      const option = el("option", "", words);
      option.value = value;
      return option;
    }));
    select.value = points().some(({ title }) => title === chosen) ? chosen : "";
  }

  function fail() {
    const missing = Plotly === null ? "The figure could not be loaded; its points and the table can still be had." : "";
    const words = string(shown.failure) || (shown.figure ? missing : "");
    find(".sv-failure").hidden = words === "";
    find(".sv-failure").textContent = words;
    find(".sf-footer").hidden = !shown.figure;
    find('[data-testid="save-figure"]').hidden = !Plotly;
    find(".sf-empty").hidden = Boolean(shown.figure || shown.failure);
    node.hidden = !shown.figure || !Plotly;
    find(".sf-legend").hidden = node.hidden;
  }

  function choose(title) {
    chosen = title;
    select.value = title;
    const point = points().find((each) => each.title === title);
    if (point) onSelect(point.index, point.title);
    schedule();
  }

  /** The figure as this page shows it, with a ring around the chosen point. */
  function dressed() {
    const isDark = host.dataset.theme === "dark";
    const { data, layout } = JSON.parse(JSON.stringify(shown.figure), (_, value) => (isDark && swaps.get(value)) || value);
    for (const trace of data) if (hidden.has(trace.name)) trace.visible = false;
    const style = getComputedStyle(host);
    const scale = parseFloat(getComputedStyle(document.documentElement).fontSize) / 16;
    const point = points().find(({ title }) => title === chosen);
    if (point) {
      data.push({ type: "scatter", mode: "markers", x: [point.x], y: [point.y], hoverinfo: "skip", showlegend: false,
        cliponaxis: false, name: "chosen", marker: { symbol: "circle-open", size: 26, color: layout.font.color, line: { width: 2.5 } } });
    }
    const small = node.clientWidth < NARROW;
    const sized = (font) => ({ ...font, size: (font?.size ?? 12) * scale });
    const axis = (own) => ({ ...own, title: { ...own.title, font: sized(own.title.font) } });
    return { data, layout: { ...layout, autosize: true, uirevision: true, paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)", height: (small ? 440 : 540) * scale, showlegend: false,
      font: { ...sized(layout.font), family: style.fontFamily },
      xaxis: axis(layout.xaxis), yaxis: axis(layout.yaxis), title: { ...layout.title, font: sized(small ? { size: 11 } : layout.title.font) } } };
  }

  async function draw() {
    scheduled = false;
    if (!Plotly || !shown.figure || node.clientWidth === 0) return;
    const { data, layout } = dressed();
    await Plotly.react(node, data, layout, { displayModeBar: false, responsive: false });
    if (wired) return;
    wired = true;
    node.on("plotly_click", ({ points: [point] }) => point.data.customdata && choose(point.data.text[point.pointNumber]));
  }

  function schedule() {
    if (scheduled) return;
    scheduled = true;
    requestAnimationFrame(draw);
  }

  function use(loaded) {
    Plotly = loaded || null;
    fail();
    schedule();
  }

  async function save(how) {
    try {
      await how();
      note.textContent = "Saved.";
    } catch {
      note.textContent = "It could not be saved: this browser does not let it be.";
    }
  }

  select.addEventListener("change", () => choose(select.value));
  find('[data-testid="save-csv"]').addEventListener("click", () =>
    save(() => download(shown.name + ".csv", "text/csv", shown.csv)));
  find('[data-testid="save-figure"]').addEventListener("click", () =>
    save(() => Plotly.downloadImage(shown.figure, { format: "png", filename: shown.name, ...SAVED_SIZE })));
  followTheme(host, () => {
    listEntries();
    schedule();
  });
  let width = 0;
  new ResizeObserver(([{ contentRect }]) => {
    if (contentRect.width !== width) schedule();
    width = contentRect.width;
  }).observe(node);
  Promise.resolve(plotly).then(use, () => use(null));
  return { update };
}

/** Mount the component in gradio’s element. */
export function mount(element, { props, trigger, watch }) {
  const onSelect = (index, value) => trigger("select", { index, value });
  const view = createFigureView(element, { dark: props.dark, onSelect, plotly: loadPlotly(props.plotly_address) });
  watch("value", () => view.update(props.value));
  view.update(props.value);
}
