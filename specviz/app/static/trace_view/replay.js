/**
 * The replay of a run: its steps in order, with play buttons and a scrubber. Knows steps; round, lanes, timeline and the view draw
 * them.
 */

import { finite } from "../shared/dom.js";
import { createLanes, seconds } from "./lanes.js";
import { narrate, pendingChips } from "./round.js";
import { clockOf, roundSoFar, stepsOf } from "./steps.js";

const STEP_PAUSE = 1100; // ms a step stays, at speed 1

/**
 * `show(step)` is called with every step gone to, with two things added: `rounds` as far as the replay has come, null at its end,
 * and `pending`, the chips of draft tokens that are not decided yet.
 */
export function createReplay(host, { timeline, show }) {
  const find = (selector) => host.querySelector(selector);
  const section = find(".sv-timeline");
  const scrubber = find(".sv-chart input");
  const narration = find(".sv-narration");
  const lanes = createLanes(find(".sv-lanes"));
  const remembered = new Map(); // what verifier_only took a token, by pair and machine
  let run, rounds, yardstick, steps, total, firsts, places, at, timer, ended;

  function reset() {
    pause();
    [run, rounds, yardstick, steps, total, firsts, places, at, ended] = [{}, [], null, [], 0, [], [], 0, false];
    find(".sv-lanes").hidden = true;
    find(".sv-clock").textContent = "";
    narrateStep(null);
    scrubber.max = "0";
    able();
    timeline.move(null);
  }

  function add(entry) {
    if (entry?.type === "run") run = entry;
    else if (entry?.type === "round") {
      firsts.push(total);
      total += entry.tokens.length;
      rounds.push(entry);
    } else if (entry?.type === "yardstick") yardstick = entry;
    else if (entry?.type === "end" || entry?.type === "error") ended = true;
  }

  /** After new entries: all steps of the run once it is whole, at the last of them. */
  function ready() {
    if (rounds.length === 0 || !ended) return;
    steps = stepsOf(rounds);
    if (steps.length === 0) return;
    // On the timeline a round's steps lie evenly: what they took was not measured one by one.
    const counts = rounds.map(() => 0);
    for (const { round } of steps) counts[round] += 1;
    const done = rounds.map(() => 0);
    places = steps.map(({ round }) => {
      const { start, end } = timeline.rounds()[round];
      return start + ((end - start) * (done[round] += 1)) / counts[round];
    });
    scrubber.max = String(steps.length - 1);
    find(".sv-lanes").hidden = false;
    lanes.show(run, rounds, measured());
    timeline.finish();
    able();
    go(steps.length - 1);
  }

  /** What verifier_only takes for a token on the same pair and machine, if it was measured. */
  function measured() {
    const key = JSON.stringify([run.pair, run.verifier, run.device, run.dtype]);
    if (run.method === "verifier_only") {
      const taken = rounds.map((round) => finite(round.seconds) / Math.max(1, round.tokens.length)).sort((a, b) => a - b);
      const typical = taken[taken.length >> 1];
      remembered.set(key, { type: "yardstick", seconds_per_token: typical, machine: "a run of the verifier alone" });
    }
    return yardstick || remembered.get(key) || null;
  }

  const button = (name) => section.querySelector('[data-go="' + name + '"]');
  const isLast = () => at === steps.length - 1;

  /** Which buttons lead anywhere. They stay focusable: keys must reach them. */
  function able() {
    const none = steps.length === 0;
    const stuck = { back: none || at === 0, next: none || isLast(), play: none };
    for (const [name, is] of Object.entries(stuck)) button(name).setAttribute("aria-disabled", String(is));
    scrubber.disabled = none;
  }

  function go(to) {
    at = Math.min(Math.max(to, 0), steps.length - 1);
    const step = steps[at];
    const round = rounds[step.round];
    section.dataset.step = String(at);
    section.dataset.phase = step.phase;
    scrubber.value = String(at);
    narrateStep(isLast() ? null : step);
    scrubber.setAttribute("aria-valuetext", isLast() ? "the whole run" : narration.textContent);
    const clock = timeline.rounds()[step.round].start + clockOf(step, round);
    find(".sv-clock").textContent = seconds(clock) + " of " + seconds(timeline.rounds().at(-1).end);
    lanes.move(step);
    timeline.move(places[at]);
    able();
    const soFar = [...rounds.slice(0, step.round), roundSoFar(round, step, firsts[step.round])].filter(Boolean);
    show({ ...step, rounds: isLast() ? null : soFar, pending: isLast() ? [] : pendingChips(step, round) });
  }

  /** Say what happens in a step; at the end of the run nothing. */
  function narrateStep(step) {
    host.classList.toggle("is-replaying", step !== null);
    if (step === null) narration.replaceChildren();
    else narration.replaceChildren("Round " + (step.round + 1) + " of " + rounds.length + ". ", ...narrate(step, rounds[step.round], run));
  }

  function pause() {
    clearTimeout(timer);
    timer = null;
    narration.setAttribute("aria-live", "polite");
    const play = button("play");
    play.setAttribute("aria-label", "Play");
    play.title = "Play";
    section.classList.remove("is-playing");
  }

  function play() {
    narration.setAttribute("aria-live", "off"); // too fast to be read out
    const play = button("play");
    play.setAttribute("aria-label", "Pause");
    play.title = "Pause";
    section.classList.add("is-playing");
    wait();
    go(isLast() ? 0 : at);
  }

  function wait() {
    timer = setTimeout(() => {
      if (!section.isConnected) return;
      if (at + 1 >= steps.length - 1) pause();
      else wait();
      go(at + 1);
    }, STEP_PAUSE / parseFloat(find(".sv-speed").value));
  }

  section.addEventListener("click", (event) => {
    const name = event.target.closest("[data-go]")?.dataset.go;
    if (!name || steps.length === 0) return;
    if (name === "play" && timer === null) return play();
    pause();
    const goals = { back: at - 1, next: at + 1, play: at };
    go(goals[name]);
  });
  scrubber.addEventListener("input", () => {
    pause();
    go(Number(scrubber.value));
  });

  /** Go to the last step up to a second of the timeline. */
  function seek(second) {
    if (steps.length === 0) return;
    pause();
    const beyond = places.findIndex((place) => place > second);
    go(beyond < 0 ? steps.length - 1 : Math.max(0, beyond - 1));
  }

  /** Go back or on until a token is on the page. */
  function reach(index) {
    const wanted = steps.findIndex((step) => step.tokens > index);
    if (wanted >= 0 && steps[at].tokens <= index) {
      pause();
      go(wanted);
    }
  }

  /** Play from the beginning; who wants no motion finds the whole run instead. */
  function start() {
    if (steps.length === 0 || matchMedia("(prefers-reduced-motion: reduce)").matches) return;
    at = steps.length - 1;
    play();
  }

  /** Go to the end of the run, wherever its replay is. */
  function finish() {
    if (steps.length === 0 || isLast()) return;
    pause();
    go(steps.length - 1);
  }

  return { reset, add, ready, seek, finish, reach, start, yardstick: measured };
}
