/**
 * The replay of a run: its steps, one after another, and a transport to walk through them. Knows rounds and the order of
 * their steps; how a step looks is the business of stage, lanes and the view.
 */

import { draftedFirst, finite, isExamined, list } from "../shared/dom.js";
import { createLanes } from "./lanes.js";
import { narrate, stageNodes } from "./stage.js";

const STEP_PAUSE = 1100; // ms a step stays, at speed 1

/**
 * The steps of rounds. A step: index of the `round`, `phase`, `offset` of its token in the round, `tokens` and `drafts`
 * (how many of the run's tokens and rejected drafts are on the page by then).
 *
 *   propose   the drafter's tokens are there          verify     the verifier has scored them
 *   accept    the coin accepted a draft token         reject     the coin rejected it
 *   extend    all were accepted: one more is drafted  resample   the replacement is drawn
 *   keep      the rest is kept unexamined             write      the verifier wrote a token itself
 */
function stepsOf(rounds) {
  const steps = [];
  const unexamined = (token) => token !== undefined && token.accepted && !isExamined(token);
  let before = 0;
  rounds.forEach((each, round) => {
    const { tokens } = each;
    const first = draftedFirst(each);
    const add = (phase, offset, shown, drafts = shown) =>
      steps.push({ round, phase, offset, tokens: before + shown, drafts: before + drafts });
    if (first > 0) add("propose", 0, 0);
    if (tokens.some(isExamined)) add("verify", 0, 0);
    tokens.forEach((token, offset) => {
      if (offset === first && offset < list(each.proposals).length) add("extend", offset, offset);
      if (!isExamined(token)) {
        if (!token.accepted) add("write", offset, offset + 1);
        else if (!unexamined(tokens[offset + 1])) add("keep", offset, offset + 1);
      } else if (token.accepted) {
        add("accept", offset, offset + 1);
      } else {
        add("reject", offset, offset, offset + 1);
        add("resample", offset, offset + 1);
      }
    });
    before += tokens.length;
  });
  return steps;
}

/** A round as far as a step has come, or null while no token of it is decided. */
function roundSoFar(round, step, first) {
  const decided = step.drafts - first;
  if (decided === 0) return null;
  const known = round.tokens.slice(0, decided);
  return { ...round, tokens: known.slice(0, step.tokens - first), examined: known.filter(isExamined).length,
    accepted: known.filter((token) => isExamined(token) && token.accepted).length };
}

/**
 * The transport and what it moves. `show(step)` is called with every step gone to, with `entries` added: the trace
 * as far as it has come, for figures and chart.
 */
export function createReplay(section, { show }) {
  const find = (selector) => section.querySelector(selector);
  const slider = find(".sv-jump input");
  const narration = find(".sv-narration");
  const lanes = createLanes(find(".sv-lanes"));
  const stage = find(".sv-stage");
  const remembered = new Map(); // what verifier_only took a token, by pair and machine
  let run, rounds, ending, yardstick, steps, firsts, at, timer;

  function reset() {
    pause();
    [run, rounds, ending, yardstick, steps, firsts, at] = [{}, [], [], null, [], [], 0];
    section.hidden = true;
  }

  function add(entry) {
    if (entry?.type === "run") run = entry;
    else if (entry?.type === "round") rounds.push(entry);
    else if (entry?.type === "yardstick") yardstick = entry;
    else if (entry) ending.push(entry);
  }

  /** The run is whole: make its steps, and show the first one, or the one shown before. */
  function ready() {
    steps = stepsOf(rounds);
    let before = 0;
    firsts = rounds.map((round) => (before += round.tokens.length) - round.tokens.length);
    section.hidden = steps.length === 0;
    if (steps.length === 0) return;
    slider.max = String(rounds.length);
    lanes.show(run, rounds, measured());
    go(Math.min(at, steps.length - 1));
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

  function go(to) {
    at = Math.min(Math.max(to, 0), steps.length - 1);
    const step = steps[at];
    const round = rounds[step.round];
    section.dataset.step = String(at);
    section.dataset.phase = step.phase;
    slider.value = String(step.round + 1);
    find(".sv-round-words").textContent = "Round " + (step.round + 1) + " of " + rounds.length;
    slider.setAttribute("aria-valuetext", find(".sv-round-words").textContent);
    find(".sv-step-words").textContent = "step " + (at + 1) + " of " + steps.length;
    for (const [name, stuck] of [["first", at === 0], ["back", at === 0], ["next", isLast()], ["last", isLast()]]) {
      button(name).setAttribute("aria-disabled", String(stuck)); // still focusable: keys must reach it
    }
    narration.replaceChildren(...narrate(step, round, run));
    stage.replaceChildren(...stageNodes(step, round));
    const current = stage.querySelector("[aria-current]")?.getBoundingClientRect();
    const box = stage.getBoundingClientRect();
    if (current) stage.scrollLeft = Math.max(0, current.left - box.left - (box.width - current.width) / 2);
    lanes.move(step);
    const partial = roundSoFar(round, step, firsts[step.round]);
    const entries = [run, ...rounds.slice(0, step.round), partial, ...(isLast() ? ending : [])].filter(Boolean);
    show({ ...step, entries });
  }

  const button = (name) => find('[data-go="' + name + '"]');
  const isLast = () => at === steps.length - 1;

  function pause() {
    clearTimeout(timer);
    timer = null;
    narration.setAttribute("aria-live", "polite");
    const play = button("play");
    play.setAttribute("aria-label", "Play");
    play.title = "Play";
    play.classList.remove("is-playing");
  }

  function play() {
    narration.setAttribute("aria-live", "off"); // too fast to be read out
    const play = button("play");
    play.setAttribute("aria-label", "Pause");
    play.title = "Pause";
    play.classList.add("is-playing");
    if (isLast()) go(0);
    wait();
  }

  function wait() {
    timer = setTimeout(() => {
      if (!section.isConnected) return;
      go(at + 1);
      if (isLast()) pause();
      else wait();
    }, STEP_PAUSE / parseFloat(find(".sv-speed select").value));
  }

  section.addEventListener("click", (event) => {
    const name = event.target.closest("[data-go]")?.dataset.go;
    if (!name || steps.length === 0) return;
    if (name === "play" && timer === null) return play();
    pause();
    const goals = { first: 0, back: at - 1, next: at + 1, last: steps.length - 1 };
    if (Object.hasOwn(goals, name)) go(goals[name]);
  });
  slider.addEventListener("input", () => {
    pause();
    const wanted = steps.findIndex((step) => step.round >= Number(slider.value) - 1);
    go(wanted < 0 ? steps.length - 1 : wanted);
  });

  return { reset, add, ready, yardstick: measured };
}
