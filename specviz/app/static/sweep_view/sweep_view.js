/**
 * A sweep: one sentence, a chart of quality against cost, and the chosen point with its texts. Everything but the texts of a point is
 * in the value, so temperature, axes and curves change without the server.
 *
 * The value is JSON: {titles, names, which, sweep, said, failure}. `titles` and `names` (for addresses) list the available sweeps, and
 * `which` is the index of the shown one. `sweep` is {complete, temperatures, opens, claims, points, task, models, source, about, csv}. A
 * claim is {headline, doubt, curves, shown, named}; `shown` is the index of the point to begin with, `named` that of the point that the
 * headline is about; either may be null. The prop `card` is JSON {sweep, point, …} for `card.js`. The address has {sweep, heat, point},
 * where `heat` is the temperature.
 */

import { write } from "../page/address.js";
import { el, list, string } from "../shared/dom.js";
import { download } from "../shared/download.js";
import { followTheme } from "../shared/theme.js";
import { createCard } from "./card.js";
import { createChart, symbolPath } from "../shared/chart.js";
import { pictureOf, savePicture } from "./picture.js";

const PLACE = "tradeoff"; // of the page
const START = { x: "rejection_rate", y: "accuracy" };
const NEAR = 1e-4; // leniences closer than this are one: an address has six digits
const GONE = "The sweep of this link is not here: your own one lasts as long as your visit. This is a recorded one.";
const LEVELS = { verifier_only: "verifier alone", drafter_only: "drafter alone" };
const HALF = new Map([[0.25, "¼"], [0.5, "½"], [0.75, "¾"]]);

function read(value) {
  try {
    return Object(JSON.parse(value));
  } catch {
    return {};
  }
}

/** Whole hundredths, halves up; `of_hundred` in `specviz.analysis.sweep.claim` rounds the same. */
const hundredths = (share) => Math.floor(Number((100 * share).toFixed(6)) + 0.5);
const signed = (words) => words.replace("-", "−");

function createSweepView(host, { methods, figures, onChoose, onShow, onOpen, onOwn }) {
  const find = (name) => host.querySelector(`[data-testid="${name}"]`);
  const chart = createChart(find("sweep-chart"), { onChoose: choose });
  const card = createCard(find("point-card"), { onOpen: (text) => onOpen({ sweep: shown.which, point: chosen, text }) });
  const dialog = find("sweep-dialog");
  let shown = {},
    sweep = null,
    temperature = null,
    chosen = null,
    asked = null, // the point whose card was asked for last
    followed = null, // the query that was read or written last
    wanted = null, // a view that waits for its sweep: {which, heat, point}; without a heat it is new to the address
    gone = false, // whether the address names a sweep that is not here
    kept = null, // the index of the sweep that the address names
    reads = null, // that of the sweep that the reader chose, which one that goes on does not replace
    axes = { ...START };
  const extra = new Set(); // methods that the reader added

  const words = (name) => (value) =>
    signed(figures[name].is_share ? hundredths(value) + " %" : Number(value.toFixed(2)).toString());
  const claim = () => sweep.claims[sweep.temperatures.indexOf(temperature)];
  const here = () => sweep.points.filter((point) => point.temperature === temperature);
  const first = () => claim().curves;
  const isLevel = (name) => Object.hasOwn(LEVELS, name);

  // ---- the address

  const spelled = ({ method, lenience }) => method + ":" + Number(lenience.toPrecision(6));
  const isSpelled = (point, text) => {
    const [method, lenience] = (text ?? "").split(":");
    return point.method === method && Math.abs(point.lenience - Number(lenience)) < NEAR;
  };

  /** Let the address name what is shown; Back leads to what was shown before if `isNew`. */
  function keep(isNew = false) {
    if (!sweep || !host.offsetParent) return;
    const query = new URLSearchParams({ tab: PLACE, sweep: list(shown.names)[shown.which] ?? "", heat: temperature });
    if (sweep.points[chosen]) query.set("point", spelled(sweep.points[chosen]));
    write(PLACE, "?" + query, isNew);
    followed = location.search;
    gone = false;
    tell();
  }

  /** Show what the address names, unless it has been shown already. What it does not name is as on a fresh page. */
  function follow() {
    if (!sweep || !host.offsetParent || location.search === followed) return;
    const query = new URLSearchParams(location.search);
    if (query.get("tab") !== PLACE) return;
    followed = location.search;
    write(PLACE, followed, false); // so that the page finds it again, also after a reload
    const named = list(shown.names).indexOf(query.get("sweep"));
    const which = Math.max(0, named);
    gone = query.has("sweep") && named < 0;
    wanted = { which, heat: Number(query.get("heat") ?? NaN), point: query.get("point") };
    reads = which;
    tell();
    if (which !== shown.which) return onShow({ sweep: which });
    takeWanted();
    listTemperatures();
    return show();
  }

  function tell() {
    find("sweep-said").textContent = string(shown.said) || (gone ? GONE : "");
    find("sweep-failure").textContent = string(shown.failure);
    find("sweep-failure").hidden = !shown.failure;
  }

  function takeWanted() {
    const heats = sweep.temperatures;
    temperature = heats.includes(wanted.heat) ? wanted.heat : sweep.opens;
    const found = here().find((point) => isSpelled(point, wanted.point) && !isLevel(point.method));
    chosen = found?.index ?? null;
    if (found && !first().includes(found.method)) extra.add(found.method);
    wanted = null;
  }

  function update(value) {
    const another = read(value);
    if (another.failure && !another.sweep && sweep) { // it did not begin: what is shown stays
      shown = { ...shown, failure: another.failure };
      return tell();
    }
    if (!another.sweep) reads = null; // a new one begins
    if (reads !== null && another.which !== reads && !another.failure) {
      shown = { ...shown, titles: another.titles, names: another.names };
      return listSweeps();
    }
    if (another.which !== shown.which || !another.sweep) [temperature, chosen] = [null, null];
    if (another.which !== shown.which || another.sweep?.complete !== sweep?.complete) asked = null; // its figures changed
    shown = another;
    sweep = shown.sweep ?? null;
    tell();
    host.classList.toggle("is-empty", !sweep);
    listSweeps();
    if (!sweep) return;
    const heats = sweep.temperatures;
    const isLate = wanted !== null && wanted.which !== shown.which; // another sweep was asked for meanwhile
    const isNew = wanted ? wanted.heat === undefined : kept !== null && kept !== shown.which;
    if (wanted && !isLate) takeWanted();
    else if (!heats.includes(temperature)) temperature = sweep.opens;
    listTemperatures();
    show();
    if (isLate) return;
    if (isNew) keep(true);
    kept = shown.which;
  }

  function show() {
    const { headline, doubt, named } = claim();
    find("sweep-finding").textContent = (named === null ? "At" : "★ The finding at") + " temperature " + (HALF.get(temperature) ?? temperature);
    find("sweep-headline").textContent = headline;
    find("sweep-doubt").textContent = doubt;
    find("sweep-task").textContent = sweep.task;
    find("point-models").textContent = string(sweep.models);
    listOthers();
    listAxes();
    if (sweep.points[chosen]?.temperature !== temperature) chosen = claim().shown;
    draw();
    card.mark(chosen === claim().named);
    ask();
  }

  function draw() {
    const axis = (name) => ({ title: figures[name].title, words: words(name), hint: figures[name].higher_is_better ? " (more is better)" : figures[name].is_quality ? " (less is better)" : " (less is cheaper)" });
    const drawn = here().filter(({ figures: own }) => own[axes.x] && own[axes.y]);
    const names = [...first(), ...extra].filter((name, at, all) => all.indexOf(name) === at);
    const pointOf = (each) => ({ index: each.index, title: each.title, x: each.figures[axes.x], y: each.figures[axes.y] });
    const curves = names.map((name) => ({ name: methods[name].title, colour: colour(name), symbol: methods[name].symbol,
      points: drawn.filter((each) => each.method === name).sort((a, b) => a.lenience - b.lenience).map(pointOf) }));
    const levels = Object.entries(LEVELS).flatMap(([name, title]) => drawn.filter((each) => each.method === name).map((each) => ({ name: title, y: each.figures[axes.y][0] })))
      .map((level, at) => ({ ...level, isRight: at > 0 }));
    chart.draw({ x: axis(axes.x), y: axis(axes.y), curves: curves.filter(({ points }) => points.length), levels, chosen, starred: claim().named,
      intervals: find("sweep-intervals").getAttribute("aria-pressed") === "true" });
  }

  const colour = (name) => "var(--sv-" + methods[name].colour + ")";

  /** Ask for the card of the chosen point once it is in sight. */
  function ask() {
    if (chosen === null || chosen === asked || !host.offsetParent) return;
    asked = chosen;
    onChoose({ sweep: shown.which, point: chosen });
  }

  function choose(index) {
    chosen = index;
    draw();
    card.mark(chosen === claim().named);
    ask();
    keep();
    card.open();
  }

  // ---- what can be set

  function listSweeps() {
    const titles = list(shown.titles);
    const select = find("sweep-which");
    select.parentElement.hidden = titles.length < 2;
    select.replaceChildren(...titles.map((title, at) => new Option(title, at, false, at === shown.which)));
  }

  function listTemperatures() {
    const row = find("sweep-temperature").querySelector("div");
    const heats = sweep.temperatures.map(String);
    if ([...row.querySelectorAll("input")].map((each) => each.value).join() !== heats.join()) {
      row.replaceChildren(...sweep.temperatures.map((heat) => {
        const input = el("input");
        Object.assign(input, { type: "radio", name: "sweep-temperature", value: heat });
        input.setAttribute("aria-label", heat);
        input.addEventListener("change", () => {
          [temperature, chosen] = [heat, null];
          show();
          keep();
        });
        return el("label", "", input, el("span", "", HALF.get(heat) ?? String(heat)));
      }));
    }
    row.querySelector(`input[value="${temperature}"]`).checked = true;
  }

  function listOthers() {
    const names = [...new Set(here().map(({ method }) => method))].filter((name) => !isLevel(name) && !first().includes(name));
    const rows = names.map((name) => check("checkbox", "sweep-others", methods[name].title, extra.has(name), (isOn) => {
      if (isOn) extra.add(name);
      else extra.delete(name);
      draw();
    }, name));
    find("sweep-others").hidden = names.length === 0;
    find("sweep-others").querySelector(".st-list").replaceChildren(...rows);
  }

  function listAxes() {
    const group = (axis, title, offered) => {
      const rows = offered.map((name) => check("radio", "sweep-" + axis, figures[name].title, axes[axis] === name, () => {
        axes = { ...axes, [axis]: name };
        draw();
      }, null, figures[name].meaning));
      return el("fieldset", "", el("legend", "", title), ...rows);
    };
    const names = Object.keys(figures);
    find("sweep-axes").querySelector(".st-list").replaceChildren(
      group("y", "Quality, upwards", names.filter((name) => figures[name].is_quality)),
      group("x", "Cost, to the right", names.filter((name) => !figures[name].is_quality)));
  }

  function check(type, name, title, isOn, onChange, method = null, meaning = "") {
    const input = el("input");
    Object.assign(input, { type, name, checked: isOn });
    input.addEventListener("change", () => onChange(input.checked));
    const label = el("label", "", input);
    if (method) {
      const sign = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      sign.setAttribute("viewBox", "-8 -8 16 16");
      sign.setAttribute("aria-hidden", "true");
      sign.style.fill = colour(method);
      sign.append(symbolPath(methods[method].symbol, 6));
      label.append(sign);
    }
    label.append(el("span", "", title, meaning && el("small", "", meaning)));
    return label;
  }

  // ---- more

  function openPage(...nodes) {
    closeMenus(null);
    dialog.querySelector(".st-page").replaceChildren(...nodes);
    dialog.showModal();
  }

  function about() {
    openPage(el("dl", "", ...list(sweep.about).flatMap(([term, said]) => [el("dt", "", term), el("dd", "", said)])));
  }

  function table() {
    const names = Object.keys(figures);
    const cell = (name, found) => (found ? words(name)(found[0]) + (found[1] < found[2] ? ` (${words(name)(found[1])} to ${words(name)(found[2])})` : "") : "–");
    const row = (tag, cells) => el("tr", "", ...cells.map((said) => el(tag, "", said)));
    const head = row("th", ["Point", ...names.map((name) => figures[name].title)]);
    const rows = here().map((point) => row("td", [point.title, ...names.map((name) => cell(name, point.figures[name]))]));
    openPage(el("table", "", el("thead", "", head), el("tbody", "", ...rows)));
  }

  async function save(how) {
    const note = find("sweep-more").querySelector("[role=status]");
    try {
      await how();
      note.textContent = "Saved.";
    } catch {
      note.textContent = "It could not be saved: this browser does not allow it.";
    }
  }

  /** The picture is drawn on white, whatever the page's theme. */
  function picture() {
    const theme = host.dataset.theme;
    host.dataset.theme = "light";
    draw();
    const style = getComputedStyle(host);
    const [paper, ink] = ["--sv-panel", "--sv-text"].map((name) => style.getPropertyValue(name).trim());
    const { headline, doubt } = claim();
    const source = `${sweep.source}, temperature ${temperature}`;
    const found = pictureOf(find("sweep-chart").querySelector("svg"), { paper, ink, head: headline, more: doubt, source });
    host.dataset.theme = theme;
    draw();
    return found;
  }

  find("sweep-which").addEventListener("change", ({ target }) => {
    wanted = { which: Number(target.value) };
    reads = wanted.which;
    onShow({ sweep: reads });
  });
  find("sweep-intervals").addEventListener("click", ({ target }) => {
    target.setAttribute("aria-pressed", String(target.getAttribute("aria-pressed") !== "true"));
    draw();
  });
  host.querySelector(".st-own").addEventListener("click", onOwn);
  find("sweep-about").addEventListener("click", about);
  find("sweep-table").addEventListener("click", table);
  find("save-csv").addEventListener("click", () => save(() => download("specviz-sweep.csv", "text/csv", sweep.csv)));
  for (const format of ["png", "svg"]) find("save-" + format).addEventListener("click", () => save(() => savePicture("specviz-sweep", picture(), format)));

  const menus = [...host.querySelectorAll(".st-menu")];
  const closeMenus = (but) => menus.forEach((menu) => menu.contains(but) || (menu.open = false));
  document.addEventListener("pointerdown", ({ target }) => closeMenus(target));
  for (const menu of menus) {
    menu.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      closeMenus(null);
      menu.querySelector("summary").focus();
    });
  }
  dialog.addEventListener("click", ({ target }) => target === dialog && dialog.close());
  followTheme(host);
  /** The chart takes the rest of the first screen; what comes in sight is what the address names. */
  function fit() {
    const panel = host.querySelector(".st-panel");
    if (!panel.offsetParent) return;
    host.style.setProperty("--st-top", Math.round(panel.getBoundingClientRect().top + scrollY) + "px");
    follow();
    if (sweep && !wanted) ask();
  }
  const sizes = new ResizeObserver(fit);
  for (const name of ["said", "failure", "finding", "headline", "doubt", "task"]) sizes.observe(find("sweep-" + name));
  sizes.observe(host.querySelector(".st-which"));
  addEventListener("popstate", () => follow());

  /** The card of a point, unless another one was chosen meanwhile. */
  function fill(value) {
    const found = read(value);
    if (found.sweep !== shown.which || found.point !== chosen) return;
    asked = chosen;
    card.update(found);
  }

  return { update, fill };
}

/** Mount the component in gradio’s element. */
export function mount(element, { props, trigger, watch }) {
  const view = createSweepView(element.querySelector(".st-view"), { methods: props.methods, figures: props.figures,
    onChoose: (point) => trigger("choose", point), onShow: (which) => trigger("show", which), onOpen: (text) => trigger("open", text), onOwn: () => trigger("own") });
  watch("value", () => view.update(props.value));
  watch("card", () => view.fill(props.card));
  view.update(props.value);
  view.fill(props.card);
}
