/** The recorded sweep: right answers against rejections, one curve per method, and where answers become surely worse. */

import { attributes, el, shape } from "../../shared/dom.js";

const WIDTH = 640, HEIGHT = 440, LEFT = 60, RIGHT = 24, TOP = 56, BOTTOM = 60;
const STEP = 0.2;
const NAMED = 0.45; // of the axis: where the curves' names stand

export function tradeoffPicture({ curves, models, edge }, { language, methods }) {
  const { say, percent, plain } = language;
  const points = curves.flatMap((curve) => curve.points);
  const upTo = (shares) => Math.ceil(10 * Math.max(...shares)) / 10;
  const [farthest, most] = [upTo(points.map((point) => point.x)), upTo([models.verifier, ...points.map((point) => point.value)])];
  const x = (share) => LEFT + (share / farthest) * (WIDTH - LEFT - RIGHT);
  const y = (share) => HEIGHT - BOTTOM - (share / most) * (HEIGHT - TOP - BOTTOM);
  const svg = attributes(shape("svg", { viewBox: "0 0 " + WIDTH + " " + HEIGHT, class: "sl-curves", role: "img" }), { "data-testid": "curves" });
  const text = (words, at) => {
    const node = shape("text", at);
    node.textContent = words;
    svg.append(node);
    return node;
  };
  const across = (share, className) => svg.append(shape("path", { d: "M" + LEFT + " " + y(share) + "H" + (WIDTH - RIGHT), class: className }));
  for (let share = 0; share <= most + 1e-9; share += STEP) {
    across(share, "grid");
    text(percent(share), { x: LEFT - 8, y: y(share) + 5, "text-anchor": "end", class: "tick" });
  }
  for (let share = 0; share <= farthest + 1e-9; share += STEP) text(percent(share), { x: x(share), y: HEIGHT - BOTTOM + 22, "text-anchor": "middle", class: "tick" });
  text(say("rejection_rate") + " →", { x: WIDTH - RIGHT, y: HEIGHT - 10, "text-anchor": "end", class: "axis" });
  text("← " + say("fewer"), { x: LEFT, y: HEIGHT - 10, class: "axis" });
  text("↑ " + say("accuracy"), { x: 8, y: 18, class: "axis" });
  for (const [name, share] of Object.entries(models)) {
    across(share, "model " + name);
    text(say(name + "_only"), { x: name === "verifier" ? LEFT + 6 : WIDTH - RIGHT, y: y(share) + (share < Math.max(...Object.values(models)) ? 18 : -8), "text-anchor": name === "verifier" ? "start" : "end", class: "model-name " + name });
  }
  const top = curves.reduce((best, curve) => (heightAt(curve) > heightAt(best) ? curve : best));
  for (const curve of curves) drawCurve(curve, curve === top);
  attributes(svg, { "aria-label": say("accuracy") + ", " + say("rejection_rate") });

  /** How high a curve is where labels stand. */
  function heightAt({ points: own }) {
    const at = NAMED * farthest;
    const sorted = [...own].sort((a, b) => a.x - b.x);
    const next = sorted.findIndex((point) => point.x >= at);
    if (next <= 0) return sorted.at(next)?.value ?? 0;
    const [a, b] = [sorted[next - 1], sorted[next]];
    return a.value + ((b.value - a.value) * (at - a.x)) / (b.x - a.x);
  }

  function drawCurve({ method, points: own }, isTop) {
    const title = language.title(method, methods);
    const colour = "var(--sv-" + methods[method].colour + ")";
    const sorted = [...own].sort((a, b) => a.x - b.x);
    const line = shape("path", { d: "M" + sorted.map((point) => x(point.x) + " " + y(point.value)).join("L"), class: "curve" + (method === edge.method ? " judged" : "") });
    line.style.stroke = colour;
    svg.append(line);
    for (const point of sorted) {
      const isEdge = method === edge.method && point.lenience === edge.lenience;
      if (isEdge) svg.append(shape("path", { d: "M" + x(point.x) + " " + y(point.low) + "V" + y(point.high), class: "interval edge" }));
      const dot = shape("circle", { cx: x(point.x), cy: y(point.value), r: isEdge ? 8 : 4.5, class: isEdge ? "edge" : "" });
      dot.style.fill = colour;
      const about = shape("title");
      about.textContent = title + ", α = " + plain(point.lenience) + ": " + percent(point.value) + " (" + percent(point.low) + "–" + percent(point.high) + "), " + say("rejection_rate") + " " + percent(point.x);
      dot.append(about);
      svg.append(dot);
    }
    // The highest curve has its label above it to the left, the others below them to the right.
    const at = NAMED * farthest;
    const near = sorted.reduce((best, point) => (Math.abs(point.x - at) < Math.abs(best.x - at) ? point : best));
    text(title, { x: x(near.x) + (isTop ? -12 : 12), y: y(near.value) + (isTop ? -10 : 36), "text-anchor": isTop ? "end" : "start", class: "curve-name" }).style.fill = colour;
  }

  const node = el("figure", "sl-figure sl-tradeoff", svg);
  return { node, reveal: () => node.classList.add("is-open") };
}
