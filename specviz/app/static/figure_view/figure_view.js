/**
 * A figure that the server made, drawn by Plotly: follows the theme, lets curves stand out and points be chosen by pointer or from a
 * list, and saves itself, with its headline and source, and its table. Knows plotly's figures; knows no sweep and no method.
 *
 * createFigureView(root, {plotly, dark, onSelect}) -> {update(value)}
 *   root      the element holding figure_view.html
 *   plotly    Plotly, or a promise of it; null or a promise of null means that there is no figure
 *   dark      colour of the figure -> the colour on a dark page
 *   onSelect  called with (index, title) when a point is chosen: its customdata and text
 *   update    takes JSON: {figure, csv, name, key, finding, source, about, said, failure}, each of them optional. A figure with
 *             the key of the one before keeps the chosen point. "" is the empty view.
 */

import { attributes, el, list, string } from "../shared/dom.js";
import { download } from "../shared/download.js";
import { loadPlotly } from "../shared/plotly.js";
import { followTheme } from "../shared/theme.js";
import { CLOSED } from "../point_card/point_card.js";

const NARROW = 600; // pixels
const CHARACTERS = { circle: "●", "circle-open": "◯", square: "■", diamond: "◆", "triangle-up": "▲", "triangle-down": "▼", "triangle-left": "◄",
  "triangle-right": "►", "square-open": "□", "diamond-open": "◇", star: "★", "star-open": "☆",
  pentagon: "⬟", hexagon: "⬢", cross: "✚", x: "✖", bowtie: "⧓", hourglass: "⧗", "triangle-ne": "◥" };
const FAINT = 0.22;
const SAVED = { width: 1200, line: 22, characters: 105, plot: 620 }; // pixels, but for the characters of a line

/** The value as an object; {} where it is empty or broken. */
function readFigure(value) {
  try {
    return Object(JSON.parse(value));
  } catch {
    return {};
  }
}

/** A text in lines of so many characters at most, as plotly reads it: without its markup. */
function wrapped(text, characters) {
  const lines = [];
  for (const word of text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").split(" ").filter(Boolean)) {
    if (lines.length && (lines.at(-1) + " " + word).length <= characters) lines.push(lines.pop() + " " + word);
    else lines.push(word);
  }
  return lines;
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
    asked = new Map(), // group -> whether the reader made it stand out, or took that back
    pointed = null, // the group that is pointed at
    scheduled = false,
    wired = false;

  function update(value) {
    const figure = readFigure(value);
    if (figure.key !== shown.key) chosen = null;
    shown = figure;
    find(".sf-said").textContent = string(shown.said);
    note.textContent = "";
    listSentences();
    listPoints();
    listEntries();
    fail();
    schedule();
  }

  const groupOf = (trace) => trace.legendgroup ?? trace.name;
  const isLit = (trace) => groupOf(trace) === pointed || (asked.get(groupOf(trace)) ?? trace.meta !== "faint");

  /** The legend: of our own, because plotly's lies over the chart when the figure is narrow. An entry makes its curve stand out. */
  function listEntries() {
    const entries = list(shown.figure?.data).filter((trace) => trace.name && trace.showlegend !== false);
    find(".sf-legend").replaceChildren(...entries.map((trace) => {
      const { color, symbol } = trace.marker ?? {};
      const light = string(color) || string(trace.line?.color);
      const sign = attributes(el("i", CHARACTERS[symbol] ? "sf-sign" : "sf-line", CHARACTERS[symbol] ?? ""), { "aria-hidden": "true" });
      sign.style.color = (host.dataset.theme === "dark" && swaps.get(light)) || light;
      if (!trace.legendgroup) return el("span", "sf-entry", sign, trace.name);
      const group = groupOf(trace);
      const button = attributes(el("button", "sf-entry", sign, trace.name), { type: "button", "aria-pressed": String(isLit(trace)) });
      button.addEventListener("click", () => {
        const lit = !(asked.get(group) ?? trace.meta !== "faint");
        asked.set(group, lit);
        button.setAttribute("aria-pressed", String(lit));
        schedule();
      });
      for (const [begins, ends] of [["pointerenter", "pointerleave"], ["focus", "blur"]]) {
        button.addEventListener(begins, () => point(group));
        button.addEventListener(ends, () => point(null));
      }
      return button;
    }));
  }

  /** A curve is pointed at, or none: only its opacity changes, so that what plotly says of the point stays. */
  function point(group) {
    if (group === pointed) return;
    pointed = group;
    const traces = list(node.data).map((trace, index) => [trace, index]).filter(([trace]) => trace.legendgroup);
    if (traces.length) Plotly.restyle(node, { opacity: traces.map(([trace]) => (isLit(trace) ? 1 : FAINT)) }, traces.map(([, index]) => index));
  }

  function listSentences() {
    const [headline, ...details] = list(shown.finding).map(string);
    find(".sf-head").hidden = !headline;
    find(".sf-headline").textContent = headline ?? "";
    find(".sf-details").textContent = details.join(" ");
    const about = list(shown.about);
    find(".sf-about").hidden = about.length === 0;
    find(".sf-about dl").replaceChildren(...about.flatMap(([term, words]) => [el("dt", "", term), el("dd", "", words)]));
  }

  /** The points that can be chosen: those of the traces that have an index for each. */
  function points() {
    return list(shown.figure?.data).flatMap((trace) => list(trace.customdata).map((index, at) => ({ index, title: trace.text[at] })));
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
    for (const kind of ["png", "svg"]) find(`[data-testid="save-${kind}"]`).hidden = !Plotly;
    find(".sf-empty").hidden = Boolean(shown.figure || shown.failure);
    node.hidden = !shown.figure || !Plotly;
    find(".sf-legend").hidden = node.hidden;
  }

  function choose(title) {
    chosen = title;
    select.value = title;
    const found = points().find((each) => each.title === title);
    if (found) onSelect(found.index, found.title);
    schedule();
  }

  /** The figure with what the reader asked for: curves that stand out, with their intervals and names, and the others faint. */
  function lit(isDark) {
    const { data, layout } = JSON.parse(JSON.stringify(shown.figure), (_, value) => (isDark && swaps.get(value)) || value);
    const names = new Map();
    for (const trace of data) {
      if (!trace.legendgroup) continue;
      const stands = isLit(trace);
      names.set(trace.legendgroup, stands);
      trace.opacity = stands ? 1 : FAINT;
      if (trace.error_y) trace.error_y.visible = stands;
    }
    for (const each of list(layout.annotations)) if (names.has(each.name)) each.visible = names.get(each.name);
    return { data, layout };
  }

  /** The figure as this page shows it, with a ring around the chosen point and its intervals both ways. */
  function dressed() {
    const { data, layout } = lit(host.dataset.theme === "dark");
    const style = getComputedStyle(host);
    const scale = parseFloat(getComputedStyle(document.documentElement).fontSize) / 16;
    const trace = data.find((each) => each.customdata && list(each.text).includes(chosen));
    if (trace) {
      const at = trace.text.indexOf(chosen);
      const bars = (own) => own && { ...own, visible: true, array: [own.array[at]], arrayminus: [own.arrayminus[at]], color: trace.marker.color, thickness: 2 };
      data.push({ type: "scatter", mode: "markers", x: [trace.x[at]], y: [trace.y[at]], error_x: bars(trace.error_x), error_y: bars(trace.error_y),
        hoverinfo: "skip", showlegend: false, cliponaxis: false, name: "chosen",
        marker: { symbol: "circle-open", size: 26, color: layout.font.color, line: { width: 2.5 } } });
    }
    const small = node.clientWidth < NARROW;
    const sized = (font) => ({ ...font, size: (font?.size ?? 12) * scale });
    const axis = (own) => ({ ...own, title: { ...own.title, font: sized(own.title.font) } });
    // On a narrow screen the legend alone names the curves.
    const annotations = list(layout.annotations).filter((own) => !small || !own.bgcolor).map((own) => ({ ...own, bgcolor: own.bgcolor && layout.paper_bgcolor, font: sized(own.font) }));
    return { data, layout: { ...layout, annotations, autosize: true, uirevision: true, paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)", height: (small ? 400 : 500) * scale, showlegend: false, title: { text: "" },
      margin: { ...layout.margin, t: 16 }, font: { ...sized(layout.font), family: style.fontFamily },
      xaxis: axis(layout.xaxis), yaxis: axis(layout.yaxis) } };
  }

  /** The figure on white for other places: its headline above, its source below. */
  function pictured() {
    const { data, layout } = lit(false);
    const [headline = "", ...details] = list(shown.finding);
    const above = [...wrapped(headline, SAVED.characters * 0.8).map((line) => `<b>${line}</b>`),
      ...wrapped(details.join(" "), SAVED.characters * 1.35).map((line) => `<span style="font-size:12px">${line}</span>`)];
    const top = 56 + above.length * SAVED.line;
    const source = { text: wrapped(string(shown.source), 1000)[0] ?? "", showarrow: false, xref: "paper", yref: "paper", x: 0, y: 0, xanchor: "left",
      yanchor: "top", yshift: -62, font: { size: 12, color: layout.font.color } };
    return { data, layout: { ...layout, width: SAVED.width, height: SAVED.plot + top, font: { ...layout.font, family: "Inter, Helvetica, Arial, sans-serif" },
      title: { text: above.join("<br>"), font: { size: 17 }, x: 0.02, xanchor: "left", y: 1 - 36 / (SAVED.plot + top), yanchor: "top" },
      legend: { ...layout.legend, y: -0.2 }, margin: { ...layout.margin, l: 70, r: 24, t: top, b: 110 }, annotations: [...list(layout.annotations), source] } };
  }

  async function draw() {
    scheduled = false;
    if (!Plotly || !shown.figure || node.clientWidth === 0) return;
    const { data, layout } = dressed();
    await Plotly.react(node, data, layout, { displayModeBar: false, responsive: false });
    if (wired) return;
    wired = true;
    node.on("plotly_hover", ({ points: [near] }) => point(near.data.legendgroup ?? null));
    node.on("plotly_unhover", () => point(null));
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
      note.textContent = "It could not be saved: this browser does not allow it.";
    }
  }

  select.addEventListener("change", () => choose(select.value));
  find('[data-testid="save-csv"]').addEventListener("click", () =>
    save(() => download(shown.name + ".csv", "text/csv", shown.csv)));
  for (const format of ["png", "svg"]) {
    find(`[data-testid="save-${format}"]`).addEventListener("click", () => save(() => {
      const picture = pictured();
      const { width, height } = picture.layout;
      return Plotly.downloadImage(picture, { format, filename: shown.name, width, height, scale: format === "png" ? 2 : 1 });
    }));
  }
  document.addEventListener(CLOSED, () => {
    chosen = null;
    select.value = "";
    if (host.isConnected && host.offsetParent) select.focus();
    schedule();
  });
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
