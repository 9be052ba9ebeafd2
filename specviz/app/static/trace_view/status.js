/**
 * The status line: counts rounds as they come and shows the figures derived from them.
 */

import { DASH, count, draftLength, el, finite, list, string, waitingWords } from "../shared/dom.js";

const ANNOUNCE_EVERY = 5000; // ms between two spoken updates of the figures
const IDLE_ROUNDS = 8; // rounds of one proposal after which an automatic run counts as not speculating
const STOP_WORDS = { eos: "ended by itself", length: "reached the token limit", context: "context is full",
  cancelled: "stopped", time: "time was up" };

export function createStatus(section, running = "running …") {
  const cell = (name) => section.querySelector('[data-figure="' + name + '"]');
  const warning = section.querySelector(".sv-warning");
  const failure = section.querySelector(".sv-failure");
  const idle = section.querySelector(".sv-idle");
  const live = section.querySelector(".sv-spoken");
  let sums, run, waits, end, error, broken, timer;

  function reset() {
    sums = { rounds: 0, tokens: 0, examined: 0, accepted: 0, seconds: 0, drafted: 0, now: 0, single: 0 };
    run = waits = end = error = null;
    broken = 0;
    clearTimeout(timer);
    timer = null;
    live.textContent = "";
    show();
  }

  function add(entry) {
    if (entry === null) broken += 1;
    else if (entry.type === "run") run = entry;
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
      for (const key of ["examined", "accepted", "seconds"]) sums[key] += finite(entry[key]);
    }
  }

  /** Whether K is chosen round by round; that means little where one model writes alone. */
  const isAutomatic = () => run?.draft_length === null && !string(run.method).endsWith("_only");
  const isIdle = () => isAutomatic() && sums.single >= IDLE_ROUNDS;

  function figures() {
    const { rounds, tokens, examined, accepted, drafted } = sums;
    const seconds = sums.seconds + finite(end?.prefill_seconds);
    const verified = run?.method !== "drafter_only";
    return {
      acceptance: examined > 0 ? Math.round((100 * accepted) / examined) + "%" : DASH,
      efficiency: rounds > 0 && verified ? (tokens / rounds).toFixed(1) : DASH,
      drafted: rounds > 0 ? (drafted / rounds).toFixed(1) : DASH,
      calls: rounds > 0 ? String(finite(end?.verifier_calls, verified ? rounds : 0)) : DASH,
      tokens: rounds > 0 ? String(tokens) : DASH,
      speed: rounds > 0 && seconds > 0 ? (tokens / seconds).toFixed(1) : DASH,
    };
  }

  function show() {
    const texts = figures();
    for (const [name, text] of Object.entries(texts)) cell(name).querySelector("dd").textContent = text;
    if (texts.efficiency !== DASH) {
      cell("efficiency").querySelector("dd").append(el("small", "", " tokens per verifier call"));
    }
    cell("drafted").hidden = !isAutomatic();
    if (sums.rounds > 0 && !end && !error) {
      cell("drafted").querySelector("dd").append(el("small", "", " now K = " + sums.now));
    }
    idle.hidden = !isIdle();
    if (end?.neighbours > 0) {
      cell("speed").querySelector("dd").append(el("small", "", " beside up to " + count(end.neighbours, "other text")));
    }
    cell("stop").textContent = error ? "did not work" : end ? STOP_WORDS[end.stop_reason] || "ended" : run ? running
      : waits ? waitingWords(waits.queue_position) : "";
    cell("stop").classList.toggle("is-done", end !== null || error !== null);
    failure.hidden = error === null;
    failure.textContent = string(error?.message);
    warning.hidden = broken === 0;
    warning.textContent = count(broken, "line") + " of this trace could not be read and " +
      (broken === 1 ? "was" : "were") + " left out.";
    if (end) announce();
    else if (run && !error && timer === null) timer = setTimeout(announce, ANNOUNCE_EVERY);
  }

  /** Update what a screen reader reads out: at the end at once, before it only now and then. */
  function announce() {
    clearTimeout(timer);
    timer = null;
    const texts = figures();
    live.textContent = count(sums.tokens, "token") +
      (texts.acceptance === DASH ? "" : ", acceptance rate " + texts.acceptance) +
      (texts.efficiency === DASH ? "" : ", " + texts.efficiency + " tokens per verifier call") +
      (isIdle() ? ", not speculating" : "") +
      (end ? ", " + cell("stop").textContent + "." : ".");
  }

  return { reset, add, show };
}
