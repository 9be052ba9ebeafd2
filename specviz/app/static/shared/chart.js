/**
 * A chart of curves: axes that fit the data, a name at each curve's end, two horizontal levels, intervals, and one chosen point.
 * Points are chosen by pointer (the nearest one) or by arrow keys. All text becomes text nodes. Knows nothing of what is drawn.
 *
 * createChart(node, {onChoose}) -> {draw(shown)}
 *   node      an empty positioned element, which the drawing fills
 *   onChoose  called with the index of a point
 *   draw      shown = {x, y, curves, levels, chosen, starred, intervals}. The axes x and y are {title, hint, words}; `words` formats a number.
 *             A curve is {name, colour, symbol, points: [{index, title, x: [value, low, high], y}]}, with points in order; a level is
 *             {name, y, isRight}, named at its left end or at its right one; `chosen` and `starred` are indexes of points. Without curves, draw says that there is nothing to draw.
 */

import { attributes, el, shape } from "./dom.js";

const NARROW = 560; // pixels: names take two lines from here down
const TICKS = 8; // most numbers at an axis
const NEAR = 28; // pixels around a point that count as the point
const PAD = 0.05; // of an axis, beyond the data
const GAP = 10; // pixels between the plot and the names
const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

const polygon = (corners, turn) => (r) => Array.from({ length: corners }, (_, at) => 2 * Math.PI * (at / corners + turn))
  .map((angle) => (r * Math.sin(angle)).toFixed(2) + " " + (-r * Math.cos(angle)).toFixed(2));
const outline = (...corners) => (r) => corners.map(([x, y]) => r * x + " " + r * y);
const plus = [[-0.3, -1], [0.3, -1], [0.3, -0.3], [1, -0.3], [1, 0.3], [0.3, 0.3], [0.3, 1], [-0.3, 1], [-0.3, 0.3], [-1, 0.3], [-1, -0.3], [-0.3, -0.3]];
const SYMBOLS = {
  circle: polygon(24, 0), square: polygon(4, 1 / 8), diamond: polygon(4, 0), pentagon: polygon(5, 0), hexagon: polygon(6, 0), cross: outline(...plus),
  "triangle-up": polygon(3, 0), "triangle-down": polygon(3, 1 / 2), "triangle-left": polygon(3, 3 / 4), "triangle-right": polygon(3, 1 / 4),
  x: outline(...plus.map(([x, y]) => [0.71 * (x - y), 0.71 * (x + y)])), "triangle-ne": outline([-0.8, -0.8], [0.8, -0.8], [0.8, 0.8]),
  "triangle-sw": outline([-0.8, -0.8], [-0.8, 0.8], [0.8, 0.8]), "triangle-nw": outline([-0.8, -0.8], [0.8, -0.8], [-0.8, 0.8]),
  "triangle-se": outline([0.8, -0.8], [0.8, 0.8], [-0.8, 0.8]), bar: outline([-1, -0.4], [1, -0.4], [1, 0.4], [-1, 0.4]),
  pillar: outline([-0.4, -1], [0.4, -1], [0.4, 1], [-0.4, 1]),
  hourglass: outline([-0.8, -0.8], [0.8, -0.8], [-0.8, 0.8], [0.8, 0.8]), bowtie: outline([-0.8, -0.8], [0.8, 0.8], [0.8, -0.8], [-0.8, 0.8]),
};

/** A symbol of radius r around 0. */
export function symbolPath(name, r) {
  return shape("path", { d: "M" + (SYMBOLS[name] ?? SYMBOLS.circle)(r).join("L") + "Z" });
}

/** Numbers at even steps of 1, 2 or 5 within a range, about so many. */
export function ticks([low, high], count) {
  const raw = (high - low) / count;
  const ten = 10 ** Math.floor(Math.log10(raw));
  const step = ten * [1, 2, 5, 10].find((each) => each * ten >= raw);
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, at) => Number(((first + at) * step).toPrecision(12)));
}

/** The range of values, a little wider; not beyond `floor` where all values are above it. */
function range(values, floor) {
  const low = Math.min(...values), high = Math.max(...values);
  const pad = PAD * (high - low) || 0.05 * Math.abs(high) || 1;
  return [low >= floor ? Math.max(low - pad, floor - pad / 2) : low - pad, high + pad];
}

/** Heights for names near the wanted ones, each at least so far from the one before, all within [top, bottom]. */
export function spread(wanted, heights, top, bottom) {
  const order = wanted.map((_, at) => at).sort((a, b) => wanted[a] - wanted[b]);
  const found = [...wanted];
  const least = (a, b) => (heights[a] + heights[b]) / 2;
  for (let round = 0; round < 60; round += 1) {
    for (let at = 1; at < order.length; at += 1) {
      const [a, b] = [order[at - 1], order[at]];
      const short = least(a, b) - (found[b] - found[a]);
      if (short > 0) [found[a], found[b]] = [found[a] - short / 2, found[b] + short / 2];
    }
    order.forEach((each) => (found[each] = Math.min(Math.max(found[each], top + heights[each] / 2), bottom - heights[each] / 2)));
  }
  return found;
}

export function createChart(node, { onChoose = () => {} } = {}) {
  const svg = attributes(shape("svg"), { class: "st-svg", role: "radiogroup", "aria-label": "Points" });
  const tip = attributes(el("p", "st-tip"), { "aria-hidden": "true" });
  tip.hidden = true;
  node.replaceChildren(svg, tip);
  let shown = { curves: [] },
    placed = []; // {point, curve, left, top, mark}

  function draw(next = shown) {
    shown = next;
    const { width, height } = node.getBoundingClientRect();
    const focused = svg.contains(document.activeElement);
    svg.replaceChildren();
    tip.hidden = true;
    placed = [];
    if (width === 0 || height === 0) return;
    attributes(svg, { viewBox: "0 0 " + width + " " + height, width, height });
    const em = parseFloat(getComputedStyle(svg).fontSize);
    const every = shown.curves.flatMap(({ points }) => points);
    if (every.length === 0) {
      text("No point has both of these figures yet.", width / 2, height / 2, "middle", "st-muted");
      return;
    }
    const narrow = width < NARROW;
    const names = shown.curves.map(({ name, colour }) => label(narrow ? name.split(" ") : [name], colour));
    const wide = Math.max(...names.map(({ node: each }) => each.getBBox().width));
    const ends = (axis) => every.flatMap((point) => (shown.intervals || point.index === shown.chosen ? point[axis] : [point[axis][0]]));
    const xs = range(ends("x"), 0), ys = range([...ends("y"), ...shown.levels.map(({ y }) => y)], 0);
    const box = { top: 2.4 * em, bottom: height - 3.6 * em, left: 0, right: width - wide - GAP - 4 };
    const yTicks = ticks(ys, Math.min(TICKS, Math.max(2, (box.bottom - box.top) / (4 * em))));
    const marks = yTicks.map((value) => text(shown.y.words(value), 0, 0, "end", "st-muted"));
    box.left = Math.max(...marks.map((mark) => mark.getBBox().width)) + 0.6 * em;
    const xOf = (value) => box.left + ((value - xs[0]) / (xs[1] - xs[0])) * (box.right - box.left);
    const yOf = (value) => box.bottom - ((value - ys[0]) / (ys[1] - ys[0])) * (box.bottom - box.top);
    yTicks.forEach((value, at) => {
      attributes(marks[at], { x: box.left - 0.5 * em, y: yOf(value) + 0.35 * em });
      line("M" + box.left + " " + yOf(value) + "H" + box.right, "st-grid");
    });
    for (const value of ticks(xs, Math.min(TICKS, Math.max(2, (box.right - box.left) / (4.5 * em))))) {
      line("M" + xOf(value) + " " + box.top + "V" + box.bottom, "st-grid");
      text(shown.x.words(value), xOf(value), box.bottom + 1.4 * em, "middle", "st-muted");
    }
    text("↑ " + shown.y.title + (narrow ? "" : shown.y.hint), 0, 1.1 * em, "start", "st-axis");
    text(shown.x.title + (narrow ? "" : shown.x.hint) + " →", box.right, box.bottom + 3 * em, "end", "st-axis");
    shown.levels.forEach(({ name, y, isRight }) => {
      line("M" + box.left + " " + yOf(y) + "H" + box.right, "st-level");
      const above = yOf(y) > 2.8 * em; // or it would lie on the axis’ title
      text((narrow ? name.split(" ")[0] : name) + " " + shown.y.words(y), isRight ? box.right - 4 : box.left + 4, yOf(y) + (above ? -0.4 : 1.1) * em, isRight ? "end" : "start", "st-muted");
    });
    const heights = names.map(({ lines }) => 1.25 * em * lines);
    const tops = spread(shown.curves.map(({ points }) => yOf(highest(points).y[0])), heights, 0, height);
    shown.curves.forEach((curve, at) => {
      const end = highest(curve.points);
      line("M" + xOf(end.x[0]) + " " + yOf(end.y[0]) + "L" + (box.right + GAP - 3) + " " + tops[at], "st-leader");
      names[at].node.setAttribute("transform", "translate(" + (box.right + GAP) + " " + (tops[at] - heights[at] / 2 + 0.95 * em) + ")");
    });
    const colours = new Set();
    for (const curve of shown.curves) {
      const isSecond = colours.has(curve.colour); // methods share colours
      colours.add(curve.colour);
      line("M" + curve.points.map(({ x, y }) => xOf(x[0]) + " " + yOf(y[0])).join("L"), isSecond ? "st-curve is-second" : "st-curve", curve.colour);
    }
    for (const curve of shown.curves) curve.points.forEach((point) => mark(curve, point, xOf, yOf));
    svg.append(...names.map(({ node: each }) => each));
    for (const which of [shown.starred, shown.chosen]) placed.filter(({ point }) => point.index === which).forEach(({ mark: each }) => svg.append(each)); // on top
    const stop = placed.find(({ point }) => point.index === shown.chosen) ?? placed[0];
    stop.mark.setAttribute("tabindex", "0");
    if (focused) stop.mark.focus({ preventScroll: true });
  }

  /** Where a curve is named: its strict end is often that of another one too. */
  const highest = (points) => points.reduce((best, point) => (point.y[0] > best.y[0] ? point : best));

  function text(words, x, y, anchor, className) {
    const found = attributes(shape("text"), { x, y, "text-anchor": anchor, class: className });
    found.textContent = words;
    svg.append(found);
    return found;
  }

  function label(lines, colour) {
    const found = attributes(shape("text"), { class: "st-name" });
    found.style.fill = colour;
    lines.forEach((words, at) => {
      const part = attributes(shape("tspan"), { x: 0, dy: at ? "1.15em" : 0 });
      part.textContent = words;
      found.append(part);
    });
    svg.append(found);
    return { node: found, lines: lines.length };
  }

  function line(d, className, colour) {
    const found = attributes(shape("path"), { d, class: className });
    if (colour) found.style.stroke = colour;
    svg.append(found);
  }

  function mark(curve, point, xOf, yOf) {
    const [left, top, chosen] = [xOf(point.x[0]), yOf(point.y[0]), point.index === shown.chosen];
    if (chosen || shown.intervals) {
      line("M" + left + " " + yOf(point.y[1]) + "V" + yOf(point.y[2]), chosen ? "st-interval is-chosen" : "st-interval", curve.colour);
      line("M" + xOf(point.x[1]) + " " + top + "H" + xOf(point.x[2]), chosen ? "st-interval is-chosen" : "st-interval", curve.colour);
    }
    const found = attributes(shape("g"), { class: "st-point", role: "radio", tabindex: -1, "aria-checked": chosen, "data-index": point.index,
      "aria-label": (point.index === shown.starred ? "★ " : "") + point.title + ": " + said(point).join(", "), transform: "translate(" + left + " " + top + ")" });
    const sign = symbolPath(curve.symbol, 6);
    sign.style.fill = curve.colour;
    if (chosen) found.append(attributes(shape("circle"), { r: 12, class: "st-ring" }));
    found.append(sign);
    if (point.index === shown.starred) {
      const off = chosen ? -9 : -6; // outside the ring
      const star = attributes(shape("text"), { x: off, y: off, "text-anchor": "end", class: "st-star" });
      star.textContent = "★";
      found.append(star);
    }
    svg.append(found);
    placed.push({ point, curve, left, top, mark: found });
  }

  const said = (point) => [shown.y.title + " " + shown.y.words(point.y[0]), shown.x.title + " " + shown.x.words(point.x[0])];

  /** The point nearest to a place; of those at the same place the chosen one. */
  function near({ clientX, clientY }) {
    const frame = svg.getBoundingClientRect();
    const far = ({ left, top }) => Math.hypot(clientX - frame.left - left, clientY - frame.top - top);
    const best = placed.reduce((one, each) => (one && far(one) <= far(each) ? one : each), null);
    return best && far(best) <= NEAR ? best : null;
  }

  svg.addEventListener("pointermove", (event) => {
    const found = event.pointerType === "mouse" ? near(event) : null;
    svg.style.cursor = found ? "pointer" : "";
    tip.hidden = !found;
    if (!found) return;
    tip.replaceChildren(el("b", "", found.point.title), ...said(found.point).flatMap((words) => [el("br"), words]));
    tip.style.left = Math.max(0, Math.min(found.left + 14, node.clientWidth - tip.offsetWidth)) + "px";
    tip.style.top = Math.max(0, found.top - tip.offsetHeight - 14) + "px";
  });
  svg.addEventListener("pointerleave", () => (tip.hidden = true));
  svg.addEventListener("click", (event) => {
    const found = near(event);
    if (found) onChoose(found.point.index);
  });
  svg.addEventListener("keydown", (event) => {
    const step = STEPS[event.key];
    const now = placed.find(({ mark: each }) => each === document.activeElement);
    if (!now || (!step && event.key !== "Enter" && event.key !== " ")) return;
    event.preventDefault();
    onChoose((step ? beside(now, step) : now).point.index);
  });

  /** The next point on the curve, or the nearest one of another curve. */
  function beside(now, [along, up]) {
    const of = (curve) => placed.filter((each) => each.curve === curve).sort((a, b) => a.left - b.left);
    if (along) {
      const own = of(now.curve);
      return own[Math.min(Math.max(own.indexOf(now) + along, 0), own.length - 1)];
    }
    const other = shown.curves[(shown.curves.indexOf(now.curve) + shown.curves.length - up) % shown.curves.length];
    return of(other).reduce((best, each) => (Math.abs(each.left - now.left) < Math.abs(best.left - now.left) ? each : best));
  }

  new ResizeObserver(() => draw()).observe(node);
  return { draw };
}
