/** One to three recorded runs on one clock. Each has a counter of calls, a ribbon with the calls to scale, and the text as it grows. */

import { attributes, el, shape } from "../../shared/dom.js";
import { laneOf } from "../../race/schedule.js";
import { written } from "../../race/chips.js";
import { mayMove } from "./parts.js";

const SHOW = 7; // seconds

export function racePicture({ lanes: runs }, { language, methods }) {
  const lanes = runs.map((run) => ({ name: nameOf(run), run, lane: laneOf(run), flat: run.method === "verifier_only" }));
  const end = Math.max(...lanes.map(({ lane }) => lane.end));
  const shown = lanes.map(drawLane);
  const node = el("figure", "sl-figure sl-race lanes-" + lanes.length,
    el("p", "sl-prompt", el("span", "sl-name", language.say("prompt")), " ", el("q", "", runs[0].prompt)), ...shown.map((each) => each.node));
  let frame = 0;

  /** What sets a lane apart: the model alone, the draft length where all others have one method, else the method. */
  function nameOf({ method, draft_length: length }) {
    if (method === "verifier_only") return language.say("alone");
    const differ = runs.some((run) => run.method !== method && run.method !== "verifier_only");
    return length && !differ ? "K\u00a0=\u00a0" + length : language.title(method, methods);
  }

  function drawLane({ name, lane, flat }) {
    const tokens = lane.tokens.map((token) => written(token, flat ? "flat" : token.kept ? "kept" : "own"));
    const when = lane.rounds.flatMap((round) => Array(round.count).fill(round.end));
    const calls = el("b", "", "0");
    const clock = el("span", "sl-clock");
    const ribbon = shape("svg", { viewBox: "0 0 1000 12", preserveAspectRatio: "none", class: "sl-ribbon", "aria-hidden": "true" });
    const bars = [];
    const bar = (from, to, kind) => {
      if (to <= from) return;
      const rect = shape("rect", { x: (1000 * from) / end, y: 0, width: (1000 * (to - from)) / end, height: 12, class: kind });
      bars.push([to, rect]);
      ribbon.append(rect);
    };
    bar(0, lane.prefill, "reading");
    for (const round of lane.rounds) {
      bar(round.start, round.check[0], "drafter");
      bar(...round.check, "verifier");
    }
    const own = el("section", "sl-lane", el("div", "sl-lane-head", el("h3", "", name), el("p", "sl-calls", calls, " ", language.say("calls")), clock),
      ribbon, el("p", "sl-text", ...tokens));
    attributes(own, { "data-testid": "lane" });
    const seek = (time) => {
      tokens.forEach((token, at) => token.classList.toggle("on", when[at] <= time));
      for (const [to, rect] of bars) rect.classList.toggle("on", to <= time);
      const done = time >= lane.end;
      calls.textContent = String(lane.rounds.filter((round) => round.checked && round.end <= time).length);
      clock.textContent = language.seconds(Math.min(time, lane.end));
      own.classList.toggle("is-done", done);
    };
    seek(0);
    return { node: own, seek };
  }

  const seekAll = (time) => shown.forEach((each) => each.seek(time));
  function reveal(moves) {
    cancelAnimationFrame(frame);
    if (!moves || !mayMove()) return seekAll(end);
    const begun = performance.now();
    const step = (now) => {
      const share = Math.min(1, Math.max(0, (now - begun) / (1000 * SHOW)));
      seekAll(share * end);
      if (share < 1 && node.isConnected) frame = requestAnimationFrame(step);
    };
    frame = requestAnimationFrame(step);
  }
  return { node, reveal };
}
