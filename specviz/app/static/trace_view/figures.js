/**
 * The figures of a run: counts rounds as they arrive, and shows figures (which are also the legend of the text's colours) and how
 * the run ended. While a replay is at an earlier step, the figures are those at that step.
 */

import { DASH, count, draftLength, el, finite, list, percent, string, waitingWords } from "../shared/dom.js";
import { seconds } from "./lanes.js";
import { isFree } from "./what_if.js";

const ANNOUNCE_EVERY = 5000; // ms between two spoken updates of the figures
const STOP_WORDS = { eos: "ended by itself", length: "reached the token limit", context: "context is full",
  cancelled: "stopped", time: "time was up" };

/** What a run was made with, in words. */
export function settingsWords(run, methods) {
  const method = Object.hasOwn(methods, run.method) ? methods[run.method] : {};
  const leans = !isFree(run.method);
  const penalty = run.repetition_penalty === undefined ? 1 : finite(run.repetition_penalty); // older traces have none
  const models = run.method === "verifier_only" ? [run.verifier] : run.method === "drafter_only" ? [run.drafter] : [run.drafter, run.verifier];
  return [string(method.title) || string(run.method), leans && "lenience " + finite(run.lenience),
    "temperature " + finite(run.temperature), penalty !== 1 && "repetition penalty " + penalty, leans && "K " + (run.draft_length === null ? "automatic" : finite(run.draft_length)),
    models.map(string).filter(Boolean).join(" → ")].filter(Boolean);
}

/** Sums over rounds, as `specviz/schema/run_metrics.py` forms them. `histogram` has the rounds by their number of accepted draft tokens. */
const nothing = () => ({ rounds: 0, tokens: 0, examined: 0, accepted: 0, seconds: 0, drafted: 0, histogram: [], first: null, end: null });

function addRound(sums, round) {
  sums.first ??= { tokens: round.tokens.length, seconds: finite(round.seconds) };
  if (round.examined > 0) {
    while (sums.histogram.length <= draftLength(round)) sums.histogram.push(0);
    if (finite(round.accepted, -1) in sums.histogram) sums.histogram[round.accepted] += 1;
  }
  sums.rounds += 1;
  sums.drafted += list(round.proposals).length;
  sums.tokens += round.tokens.length;
  sums.examined += finite(round.examined);
  sums.accepted += finite(round.accepted);
  sums.seconds += finite(round.seconds);
}

/** The figures of sums, by name, in words; DASH where there is none. */
function wordsOf(sums, run) {
  const { rounds, tokens, examined, accepted, drafted, end } = sums;
  const taken = sums.seconds + finite(end?.prefill_seconds);
  const alone = run?.method === "verifier_only" ? "verifier" : run?.method === "drafter_only" ? "drafter" : "";
  const calls = finite(end?.verifier_calls, alone === "drafter" ? 0 : rounds);
  const { histogram, first } = sums;
  const verified = histogram.reduce((sum, each) => sum + each, 0);
  let left = verified;
  const atLeast = histogram.map((each) => (left -= each) + each);
  return {
    utilisation: verified > 0 && drafted > 0 ? percent(accepted / drafted) : DASH,
    length: verified > 0 ? (1 + accepted / verified).toFixed(2) : DASH,
    positions: atLeast.slice(1).map((each) => percent(each / verified)).join(", ") || DASH,
    histogram: histogram.map((each, length) => length + ": " + each).join(", ") || DASH,
    first: first && end ? seconds(finite(end.prefill_seconds) + first.seconds) : DASH,
    each: first && tokens > first.tokens ? seconds((sums.seconds - first.seconds) / (tokens - first.tokens)) : DASH,
    acceptance: alone === "drafter" ? "written by the drafter, unchecked" : (examined > 0 ? percent(accepted / examined) : DASH) + " of drafts accepted",
    resampled: alone === "verifier" ? "written by the verifier" : tokens - accepted + " by the verifier",
    calls: alone === "drafter" ? "no verifier call" : count(calls, "verifier call") + (alone || calls >= tokens ? "" : ", not " + tokens),
    efficiency: rounds > 0 && alone !== "drafter" ? (tokens / rounds).toFixed(1) : DASH,
    drafted: rounds > 0 && alone !== "verifier" ? (drafted / rounds).toFixed(1) : DASH,
    speed: rounds > 0 && taken > 0 ? (tokens / taken).toFixed(1) + (end?.neighbours > 0 ? ", beside up to " + count(end.neighbours, "other text") : "") : DASH,
  };
}

/** `isNamed`: whether the run's settings are told, as there is no form that shows them. */
export function createFigures(host, methods, { isNamed }) {
  const find = (selector) => host.querySelector(selector);
  const cell = (name) => find('[data-figure="' + name + '"]');
  const [warning, failure, spoken, title] = [".sv-warning", ".sv-failure", ".sv-spoken", ".sv-title"].map(find);
  let whole, run, story, waits, error, broken, timer, different;

  function reset() {
    clearTimeout(timer);
    [run, story, waits, error, timer] = [null, null, null, null, null];
    [whole, broken, different] = [nothing(), 0, false];
    spoken.textContent = "";
    show();
  }

  function add(entry) {
    if (entry === null) broken += 1;
    else if (entry.type === "run") [run, waits, error] = [entry, null, null];
    else if (entry.type === "recorded") story = entry;
    else if (entry.type === "waiting") waits = entry;
    else if (entry.type === "end") whole.end = entry;
    else if (entry.type === "error") [error, waits] = [entry, null];
    else if (entry.type === "round") addRound(whole, entry);
  }

  function stopWords() {
    if (waits) return waitingWords(waits.queue_position);
    if (error) return run && !whole.end ? "broke off" : "";
    return whole.end ? STOP_WORDS[whole.end.stop_reason] || "ended" : run ? "running …" : "";
  }

  /** Show the figures, of the whole run or of the `rounds` that a replay has come to. */
  function show(rounds = null) {
    const sums = rounds ? nothing() : whole;
    rounds?.forEach((round) => addRound(sums, round));
    const words = wordsOf(sums, run);
    for (const [name, text] of Object.entries(words)) if (cell(name)) cell(name).textContent = whole.rounds > 0 ? text : "";
    for (const row of host.querySelectorAll(".sv-numbers-more > div")) row.hidden = row.lastElementChild.textContent === DASH;
    cell("stop").textContent = rounds ? "" : stopWords();
    find(".sv-figures").classList.toggle("is-empty", whole.rounds === 0);
    host.classList.toggle("is-ended", whole.end !== null);
    host.classList.toggle("is-waiting", waits !== null);
    const alone = isFree(run?.method) ? run.method : "";
    find(".sv-key-drafter").hidden = alone === "verifier_only";
    find(".sv-key-verifier").hidden = alone === "drafter_only";
    find(".sv-key-drafts").hidden = Boolean(alone);
    const about = find(".sv-story");
    about.hidden = !story;
    about.replaceChildren(el("b", "", string(story?.title)), " " + string(story?.story));
    sayTitle();
    failure.hidden = error === null;
    failure.textContent = string(error?.message);
    warning.hidden = broken === 0;
    warning.textContent = count(broken, "line") + " of this trace could not be read and " +
      (broken === 1 ? "was" : "were") + " left out.";
    if (waits) {
      if (spoken.textContent !== stopWords()) spoken.textContent = stopWords();
    } else if (whole.end) announce();
    else if (run && !error && timer === null) timer = setTimeout(announce, ANNOUNCE_EVERY);
  }

  function sayTitle() {
    const settings = run ? settingsWords(run, methods).join(" · ") : "";
    title.textContent = different && !waits ? "Not run yet with these settings" : isNamed ? settings : "";
    title.title = settings;
    title.classList.toggle("is-different", different && !waits);
  }

  /** Whether the form asks for another run than the one that is shown. */
  function differs(is) {
    different = is && run !== null;
    sayTitle();
  }

  /** Update what a screen reader reads out: at the end at once, before it only now and then. */
  function announce() {
    clearTimeout(timer);
    timer = null;
    const words = wordsOf(whole, run);
    spoken.textContent = [count(whole.tokens, "token"), whole.examined > 0 && words.acceptance, words.calls, whole.end && stopWords()]
      .filter(Boolean).join(", ") + ".";
  }

  /** The figures of the whole run that a picture of it shows: [value, words] of each that there is. */
  function told() {
    const { examined, accepted, tokens } = whole;
    const words = wordsOf(whole, run);
    const calls = finite(whole.end?.verifier_calls, whole.rounds);
    return [[examined > 0 && percent(accepted / examined), "of drafts accepted"], [words.efficiency !== DASH && words.efficiency, "tokens per verifier call"],
      [run?.method !== "drafter_only" && String(calls), "verifier calls"], [String(tokens), "tokens"]].filter(([value]) => value);
  }

  return { reset, add, show, differs, told };
}
