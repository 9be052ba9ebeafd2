/**
 * The timeline of a run, which is also its live chart of acceptance: one column per round, as wide as the round's time, one brick per
 * token and, above them, the acceptance rate of all examined draft tokens and of the last 16. An update draws only what is new, so its
 * cost does not grow with the run. Knows tokens and rounds; of steps it knows only their times.
 */

import { attributes, finite, isExamined, shape } from "../shared/dom.js";
import { secondsOf } from "./steps.js";

const WINDOW = 16; // examined draft tokens in the rolling acceptance
const [TOP, BOTTOM, RIGHT] = [6, 18, 40]; // px around the plot: half a line, the clock's ticks, the shares
const REASONS = { verifier_only: "Nothing is examined: the verifier writes every token.",
  drafter_only: "Nothing is examined: every draft token is kept." };

/** The least of 1, 2 and 5 times a power of ten that is not below a number. */
function nice(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((one) => one * power).find((one) => one >= least * 0.999);
}

/**
 * onSeek(seconds) is called while the pointer moves the playhead, onPick(index) when a brick is chosen.
 */
export function createTimeline(node, { onSeek, onPick }) {
  const note = node.querySelector(".sv-chart-note");
  const svg = shape("svg", { "aria-hidden": "true" });
  const bricks = shape("g", { class: "sv-plot" });
  const lines = shape("g", { class: "sv-lines" });
  const axes = shape("g", { class: "sv-axes" });
  const playhead = shape("line", { class: "sv-playhead" });
  const [all, recent] = ["sv-line-all", "sv-line-recent"].map((name) => shape("polyline", { class: name }));
  lines.append(recent, all);
  svg.append(bricks, axes, lines, playhead);
  node.prepend(svg);
  let rounds, columns, clock, tallest, span, outcomes, accepted, marked, shown, at, size;

  function reset() {
    [rounds, columns, clock, tallest, span, outcomes, accepted] = [[], [], 0, 4, 0.5, [], 0];
    [marked, shown, at] = [null, 0, null];
    bricks.replaceChildren();
    for (const line of [all, recent]) line.points.clear();
    note.textContent = "The share of accepted draft tokens will be drawn here.";
    fit();
  }

  /** Take in a round and its items. */
  function add(items, round, run) {
    const [start, long] = [clock, Math.max(secondsOf(round), 1e-4)];
    clock += long;
    const column = items.map(({ token, index }, offset) => {
      if (isExamined(token)) {
        outcomes.push(token.accepted ? 1 : 0);
        accepted += token.accepted ? 1 : 0;
        const last = outcomes.slice(-WINDOW);
        const x = start + (long * (offset + 1)) / items.length;
        extend(all, x, accepted / outcomes.length);
        extend(recent, x, last.reduce((sum, one) => sum + one, 0) / last.length);
      }
      const brick = shape("rect", { class: "sv-brick " + (token.accepted ? "kept" : "own"), x: start, y: offset + 0.06, width: long, height: 0.88 });
      brick.dataset.index = String(index);
      return brick;
    });
    bricks.append(...column);
    columns.push(...column);
    rounds.push({ start, end: clock, first: items[0]?.index ?? columns.length, count: items.length });
    shown = columns.length;
    note.textContent = REASONS[run.method] ?? "";
    if (items.length > tallest || clock > span) {
      tallest = Math.max(tallest, items.length);
      if (clock > span) span = clock * 1.35; // so that the scale changes now and then, not at every round
      fit();
    }
  }

  function extend(line, x, share) {
    const point = svg.createSVGPoint();
    [point.x, point.y] = [x, share];
    line.points.appendItem(point);
  }

  /** The run is whole: the clock ends where it ended. */
  function finish() {
    if (clock > 0) span = clock;
    fit();
  }

  /** Scale what is there to the room there is. */
  function fit() {
    size = { width: Math.max(1, node.clientWidth - RIGHT), height: Math.max(1, node.clientHeight - TOP - BOTTOM) };
    const { width, height } = size;
    attributes(svg, { width: node.clientWidth, height: node.clientHeight });
    bricks.setAttribute("transform", "translate(0 " + (TOP + height) + ") scale(" + width / span + " " + -height / tallest + ")");
    lines.setAttribute("transform", "translate(0 " + (TOP + height) + ") scale(" + width / span + " " + -height + ")");
    axes.replaceChildren(...ticks());
    move(at);
  }

  function ticks() {
    const { width, height } = size;
    const text = (words, x, y, anchor) => Object.assign(shape("text", { x, y, "text-anchor": anchor }), { textContent: words });
    const grid = [0, 0.5, 1].flatMap((share) => [
      shape("line", { x1: 0, x2: width, y1: TOP + height * (1 - share), y2: TOP + height * (1 - share) }),
      text(100 * share + (share === 1 ? " %" : ""), width + 6, TOP + height * (1 - share) + 4, "start")]);
    const step = nice(span / Math.max(2, Math.floor(width / 90)));
    const digits = Math.max(0, -Math.floor(Math.log10(step)));
    const times = Array.from({ length: Math.floor(span / step + 1e-6) + 1 }, (_, index) =>
      text(index === 0 ? "0 s" : (index * step).toFixed(digits), (index * step * width) / span, TOP + height + 14, index === 0 ? "start" : "middle"));
    return clock > 0 ? [...grid, ...times] : [];
  }

  /** Show the playhead at a second of the clock, or not at all. */
  function move(to) {
    at = to;
    playhead.style.display = to === null ? "none" : "";
    if (to === null) return;
    const x = (Math.min(to, span) * size.width) / span;
    attributes(playhead, { x1: x, x2: x, y1: TOP - 4, y2: TOP + size.height });
  }

  /** Fade the bricks from so many tokens on: a replay has not come to them. */
  function showUpTo(tokens) {
    for (let index = Math.min(tokens, shown); index < Math.max(tokens, shown); index += 1) {
      columns[index]?.classList.toggle("is-later", index >= tokens);
    }
    shown = tokens;
  }

  function mark(index) {
    columns[marked]?.classList.remove("is-marked");
    marked = index;
    columns[index]?.classList.add("is-marked");
  }

  const secondAt = (event) => ((event.clientX - svg.getBoundingClientRect().left) / size.width) * span;

  /** The index of the brick below the pointer, or null. */
  function brickAt(event) {
    const second = secondAt(event);
    const round = rounds.find(({ start, end }) => start <= second && second < end);
    const level = Math.floor(((TOP + size.height - (event.clientY - svg.getBoundingClientRect().top)) / size.height) * tallest);
    return round && level >= 0 && level < round.count ? round.first + level : null;
  }

  let down = null; // where the pointer went down, until it moves
  svg.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    svg.setPointerCapture(event.pointerId);
    down = { x: event.clientX, brick: brickAt(event) };
    if (down.brick === null) onSeek(finite(secondAt(event)));
  });
  svg.addEventListener("pointermove", (event) => {
    if (!svg.hasPointerCapture(event.pointerId)) return;
    if (down && Math.abs(event.clientX - down.x) < 4) return;
    down = null;
    onSeek(finite(secondAt(event)));
  });
  svg.addEventListener("pointerup", () => {
    if (down && down.brick !== null) onPick(down.brick);
    down = null;
  });
  new ResizeObserver(() => fit()).observe(node);
  return { reset, add, finish, move, showUpTo, mark, rounds: () => rounds };
}
