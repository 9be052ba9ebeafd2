/** The calls of both lanes as ribbons on one time axis, to scale, and the playhead. Knows nothing of the text. */

import { el, shape } from "../shared/dom.js";
import { seconds } from "./words.js";

const STEPS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100];

/** Draws both ribbons and returns what moves the head along them. */
export function ribbons(host, plan) {
  const { alone, drafted, end } = plan;
  const veil = el("div", "sr-veil");
  const head = el("div", "sr-head");
  const done = el("span", "sr-done", "done after " + seconds(drafted.end));
  done.style.left = (100 * drafted.end) / end + "%";
  if (drafted.end > 0.75 * end) done.hidden = true;
  const read = Math.min(alone.prefill, drafted.prefill) / end;
  const reading = el("span", "sr-reading", read > 0.12 ? "reads the prompt" : read > 0.06 ? "prompt" : "");
  host.replaceChildren(ribbon(alone, end), ribbon(drafted, end), reading, veil, head, done);

  function draw({ recorded, drafted: own }) {
    const share = Math.min(1, recorded / end);
    veil.style.transform = "translateX(" + (100 * share).toFixed(3) + "%)";
    head.style.transform = veil.style.transform;
    head.style.opacity = share < 1 ? "1" : "0";
    done.style.opacity = own.done ? "1" : "0";
  }
  return { draw };
}

function ribbon(lane, end) {
  const svg = shape("svg", { viewBox: "0 0 1000 14", preserveAspectRatio: "none", class: "sr-ribbon" });
  const x = (recorded) => (1000 * recorded) / end;
  const add = (from, to, kind) => {
    if (to - from < 1e-9) return;
    svg.append(shape("rect", { x: x(from), y: 0, width: x(to - from), height: 14, class: kind }));
  };
  add(0, lane.prefill, "reading");
  for (const round of lane.rounds) {
    add(round.start, round.check[0], "drafter");
    add(...round.check, "verifier");
  }
  return svg;
}

/** Times below the ribbons: a few round ones, and the end. */
export function ticks(host, end) {
  const step = STEPS.find((one) => end / one <= 6) ?? end;
  const marks = [];
  for (let at = 0; at < 0.88 * end; at += step) {
    const mark = el("span", at ? "" : "first", at ? String(Number(at.toFixed(2))) : "0 s");
    mark.style.left = (100 * at) / end + "%";
    marks.push(mark);
  }
  host.replaceChildren(...marks, el("span", "last", seconds(end)));
}
