/**
 * Decides when a branch is shown and where it comes from: at once if it was recorded, otherwise from the server once the slider rests.
 * A new branch replaces the previous one, unless the reader keeps that one. Knows requests, traces and branches; draws nothing itself.
 */

import { finite, list, string, waitingWords } from "../shared/dom.js";
import { MOST_KEPT, createBranches } from "./branches.js";
import { createForkBar } from "./fork_bar.js";
import { createReader, parse } from "./reader.js";
import { lenienceText } from "./what_if.js";

const MOVED = "specviz-fork-moved"; // from this mark on "specviz-fork" measures how long a branch takes to show
const REST = 150; // ms without a movement after which a branch is asked for

/** The beginning of a trace as lines, with no more of it than a fork's request needs. */
function beginning(run, rounds, tokens) {
  const needed = [];
  for (let have = 0, at = 0; have < tokens && at < rounds.length; at += 1) {
    needed.push(rounds[at]);
    have += rounds[at].tokens.length;
  }
  const bare = (token) => ({ ...token, draft: null, rule: null, top: null, what_if: null });
  const end = { type: "end", stop_reason: "cancelled", seconds: 0, prefill_seconds: 0, verifier_calls: 0, drafter_calls: 0 };
  const entries = [{ ...run, alternatives: [] }, ...needed.map((round) => ({ ...round, proposals: [], tokens: round.tokens.map(bare) })), end];
  return entries.map((entry) => JSON.stringify(entry) + "\n").join("");
}

/**
 * createForks(host, {text, methods, ask, stop, form, onWhole, onItem}) -> see the returned object
 *   ask      asks the server for a fork, or null where there is none; its answer comes through `answer`
 *   stop     tells the server that a branch that it writes, {id}, is not wanted any more
 *   onWhole  called when the run must be on the page to its end
 *   onItem   as for createBranches
 */
export function createForks(host, { text, methods, ask, stop, form, onWhole, onItem }) {
  const find = (selector) => host.querySelector(selector);
  const bar = createForkBar(find('[data-testid="what-if"]'), find(".sw-words"), { text: find(".sv-text"), methods, asks: ask !== null, form, onTouch: onWhole, onWish, onRest });
  const branches = createBranches(find(".sv-fork"), { text, scroller: find(".sv-page"), methods, onItem, onClose: close });
  let run, rounds, recorded, ended;
  let unloaded; // whether the server has said that it has no models to write with
  let number = 0; // of forks that were asked for
  let writing = null; // what the server writes: {id, tokens, from, wish, branch}
  const read = createReader(); // of the server's answers
  let answered = null; // the fork that they are about
  let timer = null;
  let pending = null; // what is to be done once the hand rests

  function reset() {
    settle();
    [run, rounds, recorded, ended, unloaded] = [{}, [], [], false, false];
    branches.reset();
    bar.reset();
  }

  function add(entry) {
    if (entry?.type === "run") run = entry;
    else if (entry?.type === "round") rounds.push(entry);
    else if (entry?.type === "end") ended = true;
    else if (entry?.type === "branches") recorded = list(entry.leniences).filter((one) => Number.isFinite(one?.lenience));
    bar.add(entry);
    branches.add(entry);
  }

  /** Nothing is to come any more, neither from the clock nor from the server. */
  function settle() {
    clearTimeout(timer);
    pending = null;
    if (writing) stop({ id: writing.id });
    writing = null;
  }

  /** Close what is not kept. */
  function drop() {
    settle();
    branches.close(...branches.loose());
  }

  /** The run alone again; whether it was not. */
  function back() {
    const open = branches.all();
    const focused = open.some(({ node }) => node.contains(document.activeElement));
    settle();
    branches.close(...open);
    bar.back();
    if (focused) focusText();
    return open.length > 0;
  }

  function close(branch) {
    if (branch === writing?.branch) settle();
    branches.close(branch);
    if (branches.all().length === 0) back();
    focusText();
  }

  const focusText = () => find('.sv-text [tabindex="0"]')?.focus({ preventScroll: true });

  function onWish(wish, found) {
    performance.mark(MOVED);
    settle(); // at once, so that the next one need not share the machine with it
    if (!found) return drop();
    const nearest = nearestRecorded(wish);
    if (nearest) showRecorded(nearest);
    if (ask !== null && nearest?.lenience !== wish.lenience && !(unloaded && nearest)) {
      pending = () => write(found.index, wish);
      timer = setTimeout(onRest, REST);
    } else if (nearest) pending = () => settleAt(nearest);
  }

  /** The hand has let go, or has not moved for a while. */
  function onRest() {
    clearTimeout(timer);
    const act = pending;
    pending = null;
    act?.();
  }

  // ---- recorded

  function nearestRecorded(wish) {
    if (recorded.length === 0 || wish?.method !== run.method) return null;
    const far = (one) => Math.abs(one.lenience - wish.lenience);
    return recorded.reduce((best, one) => (far(one) < far(best) ? one : best));
  }

  function showRecorded({ lenience, trace }) {
    const id = "recorded " + lenience;
    let branch = branches.all().find((one) => one.id === id);
    if (!branch) {
      drop();
      const [opening, ...entries] = string(trace).split("\n").filter(Boolean).map(parse);
      if (opening?.type !== "run") return bar.say("At α = " + lenienceText(lenience) + " the text is the same.");
      if (isFull()) return;
      branch = branches.open(opening, { id, tokens: finite(opening.continues?.tokens), recorded: true });
      for (const entry of entries) branches.take(branch, entry);
      branches.show();
    }
    bar.say(...branches.words(branch));
  }

  /** Where nobody writes, the view's own slider comes to rest at what was recorded; a form stays, as it also sets the next run. */
  function settleAt(nearest) {
    if (form === null) bar.move({ method: run.method, lenience: nearest.lenience });
    showRecorded(nearest);
  }

  // ---- by the server

  /** Whether there is no room for one more; says so. */
  function isFull() {
    const full = branches.all().length - branches.loose().length >= MOST_KEPT;
    if (full) bar.say(MOST_KEPT + " branches are kept: close one to make another.");
    return full;
  }

  function write(tokens, wish) {
    const changes = { ...(wish.method === run.method ? {} : { method: wish.method }), lenience: wish.lenience };
    request({ tokens, chosen: null, changes }, { run, rounds }, { tokens, from: null, wish });
  }

  /** Put another token in the place of one, of the run or of a branch. */
  function take(item, token, branch) {
    performance.mark(MOVED);
    onWhole();
    clearTimeout(timer);
    pending = null;
    const wanted = { tokens: item.index, chosen: token.id, changes: {} };
    if (branch) request(wanted, branch, { tokens: branch.own + item.index, from: branch });
    else request(wanted, { run, rounds }, { tokens: item.index, from: null });
  }

  function request(wanted, source, about) {
    if (isFull()) return;
    number += 1;
    writing = { ...about, id: number, branch: null };
    ask({ id: number, trace: beginning(source.run, source.rounds, wanted.tokens), ...wanted });
  }

  /** Take in what the server has answered so far: its first line says to which request. */
  function answer(value) {
    const { anew, entries } = read(string(value));
    if (anew) answered = null;
    if (answered === null && entries[0]?.type === "fork") answered = entries.shift().id;
    if (writing === null || answered !== writing.id) return;
    const begins = writing.branch === null;
    for (const entry of entries) {
      if (writing.branch) branches.take(writing.branch, entry);
      else if (entry?.type === "run") {
        branches.close(...branches.loose());
        writing.branch = branches.open(entry, writing);
      } else if (entry?.type === "waiting") bar.say(waitingWords(entry.queue_position));
      else if (entry?.type === "error") return fail(string(entry.message));
      else if (entry?.type === "unloaded") return withoutModels(writing.wish);
    }
    const { branch } = writing;
    if (!branch) return;
    branches.show();
    if (branch.parts !== null) bar.say(...branches.words(branch));
    if (begins) performance.measure("specviz-fork", MOVED);
    if (!branch.done) return;
    writing = null;
    if (branch.parts === null && !branch.error) same(branch);
  }

  function fail(message) {
    writing = null;
    drop();
    bar.say(message);
  }

  /** A branch has ended as it began: with the run's own tokens. */
  function same(branch) {
    branches.close(branch);
    bar.say(...branches.words(branch));
  }

  function withoutModels(wish) {
    writing = null;
    unloaded = true;
    const nearest = nearestRecorded(wish);
    if (nearest) settleAt(nearest);
    else fail("The models that could write this are not loaded: press Run first.");
  }

  reset();
  return { reset, add, shown: bar.shown, take: ask === null ? null : take, answer, back, ready: (items) => ended && bar.ready(items) };
}
