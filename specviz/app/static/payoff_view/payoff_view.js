/**
 * Whether drafting pays: a sentence, the curve of speed-up over draft length, sliders for what it depends on, and recorded measurements to
 * start from. Computes in the browser with model.js; needs no model. The page's address has the numbers.
 *
 * Props: `measurements` (those of `specviz.analysis.payoff`), `methods` (name -> {title, symbol, colour}), `longest` draft length.
 */

import { write } from "../page/address.js";
import { createChart } from "../shared/chart.js";
import { attributes, count, el } from "../shared/dom.js";
import { rangeControl } from "../shared/range.js";
import { followTheme } from "../shared/theme.js";
import { best, breakEven, costOf, inBatch, paying, speedUp, tokensOf } from "./model.js";

const PLACE = "pay"; // of the page
const PAUSE = 300; // milliseconds without a move before the address has the numbers
const BATCHES = [8, 32];
const OWN = ""; // in the list of measurements
const FIRST = 100; // index of the first measured point in the chart; those below are draft lengths
const RANGES = {
  kept: { name: "Share of drafts accepted", min: 0, max: 1, step: 0.01, ends: ["0: none", "1: all"] },
  draft: { name: "Cost of a draft token", min: 0, max: 1, step: 0.01, ends: ["0: free", "1: as the verifier"] },
  check: { name: "Cost of checking one more token", min: 0, max: 1, step: 0.01, ends: ["0: free", "1: another pass"] },
  rest: { name: "Everything else in a round", min: 0, max: 1, step: 0.01, ends: ["0: nothing", "1: another pass"] },
};
const NUMBERS = Object.keys(RANGES);

const two = (value) => value.toFixed(2);
const rounded = (value) => Number(value.toFixed(2));
const isEven = (value) => two(value) === "1.00";
const times = (value) => (isEven(value) ? "" : two(value) + " times ") + "as fast as the verifier alone";

function createPayoff(host, { measurements, methods, longest }) {
  const find = (name) => host.querySelector(`[data-testid="payoff-${name}"]`);
  const chart = createChart(find("chart"), { onChoose: choose });
  const state = { from: measurements.length ? 0 : OWN, length: 3 };
  let followed = null, // the query that was read or written last
    timer = 0;
  const ranges = {
    ...Object.fromEntries(NUMBERS.map((name) => [name, rangeControl(RANGES[name].name, name, (value) => move(name, value))])),
    length: rangeControl("Draft length K", "length", (length) => change({ length })),
  };

  function change(news) {
    Object.assign(state, news);
    show();
    clearTimeout(timer);
    timer = setTimeout(keep, PAUSE);
  }

  /** Another number; the draft length becomes the best one. */
  function move(name, value) {
    const numbers = { ...state, [name]: value };
    change({ from: OWN, [name]: value, length: best(numbers.kept, numbers, longest) });
  }

  /** Start from a measurement, at its best measured draft length. */
  function start(from) {
    const chosen = measurements[from];
    if (!chosen) return { from: OWN };
    const numbers = Object.fromEntries(NUMBERS.map((name) => [name, rounded(chosen[name])]));
    const fastest = chosen.speed_ups.reduce((one, each) => (each.value > one.value ? each : one));
    return { from, ...numbers, length: fastest.draft_length };
  }

  /** A point of the chart: a draft length, or a measured point, whose acceptance rate is then taken over. */
  function choose(index) {
    const point = measurements[state.from]?.speed_ups[index - FIRST];
    if (!point) return change({ length: index });
    change({ length: point.draft_length, kept: rounded(point.kept) });
  }

  // ---- the address

  function keep() {
    if (!host.offsetParent) return;
    const query = new URLSearchParams({ tab: PLACE });
    if (measurements[state.from]) query.set("from", measurements[state.from].title);
    for (const name of [...NUMBERS, "length"]) query.set(name, state[name]);
    write(PLACE, "?" + query, false);
    followed = location.search;
  }

  function follow() {
    if (!host.offsetParent || location.search === followed) return;
    const query = new URLSearchParams(location.search);
    if (query.get("tab") !== PLACE) return;
    followed = location.search;
    clearTimeout(timer);
    write(PLACE, followed, false); // so that the page finds it again, also after a reload
    const number = (name, { min, max }) => {
      const value = Number(query.get(name) ?? NaN);
      return value >= min && value <= max ? { [name]: value } : {};
    };
    const given = Object.assign({}, ...NUMBERS.map((name) => number(name, RANGES[name])), number("length", { min: 1, max: longest }));
    if (given.length) given.length = Math.round(given.length);
    const from = measurements.findIndex(({ title }) => title === query.get("from"));
    if (from >= 0 || Object.keys(given).length) Object.assign(state, start(from), given);
    show();
  }

  // ---- what is shown

  function show() {
    const { kept, length } = state;
    const chosen = measurements[state.from];
    find("from").value = String(state.from);
    for (const name of NUMBERS) ranges[name].set({ ...RANGES[name], value: state[name] });
    ranges.length.set({ min: 1, max: longest, step: 1, value: length, ends: ["1", String(longest)] });
    find("source").textContent = chosen ? "Measured: " + chosen.source + "." : "These are your own numbers. Costs that you did not move are still those of the measurement.";
    const [verdict, range] = words(kept, state, longest);
    find("verdict").textContent = verdict;
    find("range").textContent = range;
    find("round").textContent = roundWords(kept, state, length);
    find("batch").textContent = batchWords(kept, state, longest);
    chart.draw(drawn(chosen));
  }

  function drawn(chosen) {
    const { kept, length } = state;
    const point = (index, title, k, value, low = value, high = value) => ({ index, title, x: [k, k, k], y: [value, low, high] });
    const computed = Array.from({ length: longest }, (_, at) => point(at + 1, "computed", at + 1, speedUp(kept, state, at + 1)));
    const curves = [{ name: "computed", colour: "var(--sv-text)", symbol: "circle", points: computed }];
    const measured = (chosen?.speed_ups ?? []).map((one, at) => {
      const title = methods[one.method] ? methods[one.method].title + ", α = " + one.lenience + ", accepts " + two(one.kept) : "measured";
      return { one, point: point(FIRST + at, title, one.draft_length, one.value, one.low, one.high) };
    });
    for (const [name, { title, colour, symbol }] of Object.entries(methods)) {
      const points = measured.filter(({ one }) => one.method === name).map(({ point: each }) => each);
      if (points.length) curves.push({ name: title, colour: "var(--sv-" + colour + ")", symbol, points });
    }
    const plain = measured.filter(({ one }) => !one.method).map(({ point: each }) => each);
    if (plain.length) curves.push({ name: "measured", colour: "var(--sv-target)", symbol: "square", points: plain });
    return {
      x: { title: "draft length K", hint: "", words: String },
      y: { title: "speed-up", hint: ", times the verifier alone", words: (value) => String(rounded(value)) },
      curves, levels: [{ name: "verifier alone", y: 1, isRight: true }], chosen: length, intervals: plain.length > 0,
    };
  }

  // ---- the list of measurements

  const select = find("from");
  const groups = new Map([["", select]]);
  select.append(attributes(el("option", "", "Your own numbers"), { value: OWN }));
  measurements.forEach(({ group, title }, index) => {
    if (!groups.has(group)) {
      groups.set(group, attributes(el("optgroup", ""), { label: group }));
      select.append(groups.get(group));
    }
    groups.get(group).append(attributes(el("option", "", title), { value: index }));
  });
  select.addEventListener("change", () => change(start(select.value === OWN ? OWN : Number(select.value))));
  find("ranges").append(...Object.values(ranges).map(({ node }) => node));
  Object.assign(state, { kept: 0.7, draft: 0.1, check: 0.05, rest: 0 }, start(state.from));
  show();
  new ResizeObserver(() => follow()).observe(host); // it came in sight
  addEventListener("popstate", () => follow());
}

const pays = (least) => "At these costs it pays if at least " + two(Math.ceil(100 * least - 1e-9) / 100) + " of the drafts are accepted.";

/** The verdict, and the draft lengths and shares for which it holds. */
export function words(kept, costs, longest) {
  const fastest = best(kept, costs, longest);
  const value = speedUp(kept, costs, fastest);
  const least = breakEven(costs, longest);
  const lengths = paying(kept, costs, longest);
  if (lengths.length === 0) {
    const would = least === null ? "At these costs it would not pay even if every draft token were accepted." : pays(least);
    return ["Drafting does not pay: at best K = " + fastest + ", " + times(value) + ".", would];
  }
  const [first, last] = [lengths[0], lengths.at(-1)];
  const range = last === longest ? "from K = " + first + " on" : first === last ? "at K = " + first + " only" : "from K = " + first + " to K = " + last + ", not beyond";
  return [(isEven(value) ? "Drafting hardly pays: K = " : "Drafting pays: K = ") + fastest + " is " + times(value) + ".", "At this share it pays " + range + ". " + pays(least)];
}

function roundWords(kept, costs, length) {
  const parts = ["the verifier’s pass at " + count(length, "position") + " " + two(1 + costs.check * (length - 1)), count(length, "draft token") + " " + two(costs.draft * length)];
  if (costs.rest > 0) parts.push("everything else " + two(costs.rest));
  const [tokens, cost] = [tokensOf(kept, length), costOf(costs, length)];
  return "A round of K = " + length + " costs " + two(cost) + " (" + parts.join(", ") + ") and writes " + two(tokens) + " tokens: " + two(tokens / cost) + " times.";
}

/** What changes when a pass serves more texts at once. */
function batchWords(kept, costs, longest) {
  if (costs.check === 0) {
    return "With more texts at once, checking costs more: checking further tokens is free only while reading the weights takes longer than computing.";
  }
  const cases = BATCHES.map((texts) => {
    const there = inBatch(costs, texts);
    const fastest = best(kept, there, longest);
    const value = speedUp(kept, there, fastest);
    const found = value > 1 && !isEven(value) ? "K = " + fastest + " is best, " + two(value) + " times" : "drafting does not pay";
    return "with " + texts + " texts at once one more token costs " + two(there.check) + ", and " + found;
  });
  return "Checking costs more in a batch. If passes grow in proportion to their tokens, " + cases.join("; ") + ".";
}

/** Mount the component in gradio’s element. */
export function mount(element, { props }) {
  const host = element.querySelector(".specviz");
  followTheme(host);
  createPayoff(host, props);
}
