/**
 * What a run is and how it goes: counts rounds as they come and shows the figures derived from them, its settings, its legend,
 * and how it ended.
 */

import { DASH, count, draftLength, el, finite, list, percent, string, waitingWords } from "../shared/dom.js";

const ANNOUNCE_EVERY = 5000; // ms between two spoken updates of the figures
const IDLE_ROUNDS = 8; // rounds of one draft token after which an automatic run counts as not speculating
const STOP_WORDS = { eos: "ended by itself", length: "reached the token limit", context: "context is full",
  cancelled: "stopped", time: "time was up" };

/** What a run was made with, in words. */
export function settingsWords(run, methods) {
  const method = Object.hasOwn(methods, run.method) ? methods[run.method] : {};
  const leans = !string(run.method).endsWith("_only");
  const penalty = run.repetition_penalty === undefined ? 1 : finite(run.repetition_penalty); // older traces have none
  const models = run.method === "verifier_only" ? [run.verifier] : run.method === "drafter_only" ? [run.drafter] : [run.drafter, run.verifier];
  return [string(method.title) || string(run.method), leans && "lenience " + finite(run.lenience),
    "temperature " + finite(run.temperature), penalty !== 1 && "repetition penalty " + penalty, leans && "K " + (run.draft_length === null ? "automatic" : finite(run.draft_length)),
    models.map(string).filter(Boolean).join(" → ")].filter(Boolean);
}

export function createFigures(host, methods) {
  const section = host.querySelector(".sv-status");
  const cell = (name) => section.querySelector('[data-figure="' + name + '"]');
  const find = (selector) => section.querySelector(selector);
  const warning = find(".sv-warning");
  const failure = find(".sv-failure");
  const idle = find(".sv-idle");
  const live = find(".sv-spoken");
  let sums, run, story, waits, end, error, broken, timer, words;

  function reset() {
    run = story = waits = null;
    broken = 0;
    words = "";
    rewind();
    show();
  }

  /** Forget rounds and end, to count them anew as far as a replay has come. */
  function rewind() {
    sums = { rounds: 0, tokens: 0, examined: 0, accepted: 0, seconds: 0, drafted: 0, now: 0, single: 0 };
    end = error = null;
    clearTimeout(timer);
    timer = null;
    live.textContent = "";
  }

  function add(entry) {
    if (entry === null) broken += 1;
    else if (entry.type === "run") run = entry;
    else if (entry.type === "recorded") story = entry;
    else if (entry.type === "waiting") waits = entry;
    else if (entry.type === "end") end = entry;
    else if (entry.type === "error") error = entry;
    else if (entry.type === "round") {
      sums.rounds += 1;
      sums.now = draftLength(entry);
      sums.drafted += list(entry.proposals).length;
      // Where one token is left no round could draft two: such a round does not count.
      if (sums.now !== 1) sums.single = 0;
      else if (sums.tokens + 1 < finite(run?.max_new_tokens, Infinity)) sums.single += 1;
      sums.tokens += entry.tokens.length;
      sums.examined += finite(entry.examined);
      sums.accepted += finite(entry.accepted);
      sums.seconds += finite(entry.seconds);
    }
  }

  const isAutomatic = () => run?.draft_length === null && !string(run.method).endsWith("_only");
  const isIdle = () => isAutomatic() && sums.single >= IDLE_ROUNDS;

  function figures() {
    const { rounds, tokens, examined, accepted, drafted } = sums;
    const taken = sums.seconds + finite(end?.prefill_seconds);
    const verified = run?.method !== "drafter_only";
    return {
      acceptance: examined > 0 ? percent(accepted / examined) : DASH,
      efficiency: rounds > 0 && verified ? (tokens / rounds).toFixed(1) : DASH,
      drafted: rounds > 0 ? (drafted / rounds).toFixed(1) : DASH,
      calls: rounds > 0 ? String(finite(end?.verifier_calls, verified ? rounds : 0)) : DASH,
      tokens: rounds > 0 ? String(tokens) : DASH,
      speed: rounds > 0 && taken > 0 ? (tokens / taken).toFixed(1) : DASH,
    };
  }

  function show() {
    const texts = figures();
    for (const [name, text] of Object.entries(texts)) cell(name).querySelector("dd").textContent = text;
    cell("drafted").hidden = !isAutomatic();
    if (sums.rounds > 0 && !end && !error && isAutomatic()) cell("drafted").querySelector("dd").append(el("small", "", " now " + sums.now));
    idle.hidden = !isIdle();
    if (end?.neighbours > 0) {
      cell("speed").querySelector("dd").append(el("small", "", " beside up to " + count(end.neighbours, "other text")));
    }
    const [title, ...settings] = run ? settingsWords(run, methods) : [""];
    find(".sv-title").replaceChildren(title, settings.length > 0 && el("small", "", settings.join(" · ")) || "");
    const about = host.querySelector(".sv-story");
    about.hidden = !story;
    about.replaceChildren(story ? el("b", "", string(story.title)) : "", story && string(story.story) ? " " + story.story : "");
    cell("stop").textContent = error ? "did not work" : words || (end ? STOP_WORDS[end.stop_reason] || "ended" : run ? "running …"
      : waits ? waitingWords(waits.queue_position) : "");
    cell("stop").classList.toggle("is-done", end !== null || error !== null);
    failure.hidden = error === null;
    failure.textContent = string(error?.message);
    warning.hidden = broken === 0;
    warning.textContent = count(broken, "line") + " of this trace could not be read and " +
      (broken === 1 ? "was" : "were") + " left out.";
    legend();
    if (end) announce();
    else if (run && !error && timer === null && !words) timer = setTimeout(announce, ANNOUNCE_EVERY);
  }

  /** Nothing is kept or rejected where only one model runs: its tokens have words of their own. */
  function legend() {
    const alone = run?.method === "verifier_only" ? "verifier" : run?.method === "drafter_only" ? "drafter" : null;
    const key = (name) => host.querySelector(".sv-key-" + name);
    if (!key("drafter")) return;
    key("drafter").hidden = alone === "verifier";
    key("verifier").hidden = alone === "drafter";
    key("drafts").hidden = alone !== null;
    key("drafter").lastElementChild.textContent = alone ? "written by the drafter, unchecked" : "drafted and kept";
    key("verifier").lastElementChild.textContent = alone ? "written by the verifier, a call each" : "the verifier’s own";
  }

  /** Update what a screen reader reads out: at the end at once, before it only now and then. */
  function announce() {
    clearTimeout(timer);
    timer = null;
    const texts = figures();
    live.textContent = count(sums.tokens, "token") +
      (texts.acceptance === DASH ? "" : ", " + texts.acceptance + " accepted") +
      (texts.efficiency === DASH ? "" : ", " + texts.efficiency + " tokens per verifier call") +
      (isIdle() ? ", not speculating" : "") +
      (end ? ", " + cell("stop").textContent + "." : ".");
  }

  /** Words about where a replay is, in place of how the run ended. */
  function say(more) {
    words = more;
  }

  /** The figures that a picture of the run shows: [value, words] of each that there is. */
  function told() {
    const texts = figures();
    const words = { acceptance: "accepted", efficiency: "tokens per verifier call", calls: "verifier calls", speed: "tokens/s" };
    return Object.entries(words).filter(([name]) => texts[name] !== DASH).map(([name, word]) => [texts[name], word]);
  }

  return { reset, rewind, add, show, say, told };
}
