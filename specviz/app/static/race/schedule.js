/**
 * When everything in the race happens: two traces of one text, on one clock. A lane is a run as a list of moments, in recorded
 * seconds since the request; the pace maps them to seconds of the show. Pure functions, without document or words.
 */

import { finite, list, string } from "../shared/dom.js";

/** Seconds of the show, without its last flights. */
export const SHOW = 8.2;
export const FLIGHT = 0.3;
/** The seconds that drafting, checking and deciding get in a round that is shown slower. */
const SLOWED = [[0.6, 0.45, 0.55], [0.45, 0.35, 0.6]];
const DROP = 0.5;
const CLEARING = 0.25;

/** A run as moments; `rounds` may be of any method. */
export function laneOf(run) {
  const prefill = Math.max(0, finite(run.prefill_seconds));
  const lane = { prefill, tokens: [], rounds: [], end: prefill };
  for (const round of list(run.rounds)) addRound(lane, round);
  lane.calls = lane.rounds.filter((round) => round.checked).length;
  return lane;
}

function addRound(lane, round) {
  const proposals = list(round.proposals);
  const tokens = list(round.tokens);
  const parts = [finite(round.drafter_seconds), finite(round.verifier_seconds)];
  const seconds = Math.max(finite(round.seconds), 1e-6);
  const scale = Math.min(1, seconds / (parts[0] + parts[1] || seconds)); // parts may exceed the whole by a rounding
  const [drafting, checking] = parts.map((part) => Math.max(0, part * scale));
  const each = drafting / (proposals.length || 1);
  const start = lane.end;
  const check = [start + drafting, start + drafting + checking];
  const first = lane.tokens.length;
  const decided = { start, check, checked: checking > 0, end: start + seconds, first };
  decided.slots = slotsOf(round, proposals, tokens, first).map((slot, at) => ({
    ...slot,
    at: proposals.length ? start + each * (at + 1) : start,
  }));
  decided.kept = decided.slots.filter((slot) => slot.fate === "kept").length;
  decided.replaced = decided.slots.some((slot) => slot.fate === "rejected");
  decided.drafted = proposals.length;
  decided.count = tokens.length;
  lane.rounds.push(decided);
  lane.tokens.push(
    ...tokens.map((token) => ({
      text: string(token.text),
      label: string(token.label) || string(token.text),
      kept: token.accepted === true,
      rejected: token.draft ? string(token.draft.label) || string(token.draft.text) : null,
    })),
  );
  lane.end = decided.end;
}

/** What is seen of a round: a place for each draft token, or for the one token of a round without a drafter. */
function slotsOf(round, proposals, tokens, first) {
  const nameOf = (token) => string(token.label) || string(token.text);
  if (!proposals.length) return tokens.map((token, at) => ({ text: nameOf(token), fate: "own", token: first + at }));
  const slots = proposals.map((proposal, at) => {
    const token = tokens[at];
    if (!token) return { text: nameOf(proposal), fate: "unseen", token: -1 };
    if (token.accepted) return { text: nameOf(token), fate: "kept", token: first + at };
    return { text: nameOf(token.draft ?? proposal), fate: "rejected", token: first + at, instead: nameOf(token) };
  });
  const more = tokens.slice(proposals.length);
  return [...slots, ...more.map((token, at) => ({ text: nameOf(token), fate: "own", token: first + proposals.length + at }))];
}

/**
 * The pace of the show: knots [recorded, shown] with straight lines between. The first round and the first one with a rejection
 * are slower than all the rest, which has one rate.
 */
function paceOf(alone, drafted) {
  const end = Math.max(alone.end, drafted.end);
  const [first, rejecting] = [drafted.rounds[0], drafted.rounds.find((round) => round.replaced)];
  let slowed = [{ round: first, parts: SLOWED[0], of: "first round" }];
  if (rejecting !== first) slowed.push({ round: rejecting, parts: SLOWED[1], of: "first rejection" });
  slowed = slowed.filter(({ round }) => round?.drafted);
  const rateOf = (some) => {
    const spent = some.reduce((sum, { parts }) => sum + total(parts), 0);
    const rest = end - some.reduce((sum, { round }) => sum + round.end - round.start, 0);
    return rest > 1e-9 ? (SHOW - spent) / rest : 0;
  };
  // A round that takes its time anyway is not slowed.
  const isPointless = ({ round, parts }) => rateOf(slowed) * (round.end - round.start) >= total(parts);
  while (slowed.some(isPointless)) slowed.splice(slowed.findIndex(isPointless), 1);
  const rate = rateOf(slowed);
  const knots = [[0, 0]];
  const add = (recorded, seconds) => {
    const [last, shown] = knots[knots.length - 1];
    if (recorded > last) knots.push([recorded, shown + seconds]);
  };
  const run = (recorded) => add(recorded, (recorded - knots[knots.length - 1][0]) * rate);
  for (const { round, parts } of slowed) {
    run(round.start);
    add(round.check[0], parts[0]);
    add(round.check[1], parts[1]);
    add(round.end, parts[2]);
  }
  run(end);
  return { knots, rate, slowed: slowed.map(({ of }) => of) };
}

const total = (parts) => parts.reduce((sum, part) => sum + part, 0);

/** The value on the other axis of the knots, and the rate there; `from` 0 is recorded, 1 is shown. */
export function along(knots, value, from) {
  const to = 1 - from;
  let at = 1;
  while (at < knots.length - 1 && knots[at][from] < value) at += 1;
  const [a, b] = [knots[at - 1], knots[at] ?? knots[at - 1]];
  const span = b[from] - a[from];
  const share = span > 0 ? Math.min(1, Math.max(0, (value - a[from]) / span)) : 1;
  const recorded = b[0] - a[0];
  return { value: a[to] + share * (b[to] - a[to]), rate: recorded > 0 ? (b[1] - a[1]) / recorded : 0 };
}

/** Everything that the show needs, from the component's value. */
export function planRace(value) {
  const alone = laneOf(value.alone);
  const drafted = laneOf(value.drafted);
  const pace = paceOf(alone, drafted);
  const shown = (recorded) => along(pace.knots, recorded, 0).value;
  for (const lane of [alone, drafted]) {
    lane.landings = [];
    for (const round of lane.rounds) show(round, lane, shown);
    lane.shownEnd = shown(lane.end);
  }
  const length = Math.max(SHOW, ...[alone, drafted].flatMap(({ rounds }) => rounds.map((round) => round.gone)));
  return { alone, drafted, pace, end: Math.max(alone.end, drafted.end), length, asked: askedOf(drafted) };
}

/** When a round is shown: its moments, and its tokens' flights, which leave one after another. */
function show(round, lane, shown) {
  const leave = shown(round.end);
  // Not before those of the round before, where that had many and this one is short.
  const takeOff = Math.max(leave, (lane.landings.at(-1) ?? 0) - FLIGHT);
  const lag = Math.min(0.03, 0.2 / Math.max(1, round.count));
  round.shown = { start: shown(round.start), check: round.check.map(shown), leave };
  // The chips of the round before leave first: draft tokens come into view in what remains of the drafting.
  const [start, checked] = [round.shown.start, round.shown.check[0]];
  const wait = Math.min(CLEARING, (checked - start) / 2);
  const share = checked > start ? 1 - wait / (checked - start) : 1;
  for (const slot of round.slots) {
    slot.shownAt = shown(slot.at);
    if (slot.shownAt < checked) slot.shownAt = start + wait + share * (slot.shownAt - start);
    slot.leaves = takeOff + lag * Math.max(0, slot.token - round.first);
    slot.lands = slot.leaves + FLIGHT;
  }
  for (let at = 0; at < round.count; at += 1) lane.landings.push(takeOff + lag * at + FLIGHT);
  round.gone = takeOff + Math.max(DROP, lag * round.count + FLIGHT) + 0.05;
}

/** What is to be seen at a moment of the show, in figures. */
export function momentAt(plan, shown) {
  const { value: recorded, rate } = along(plan.pace.knots, shown, 1);
  const lane = ({ rounds, landings, end, shownEnd }) => ({
    calls: rounds.filter((round) => round.checked && round.shown.check[0] <= shown && shown > 0).length,
    written: landings.filter((at) => at <= shown).length,
    done: shown >= shownEnd,
    recorded: Math.min(recorded, end),
  });
  return { recorded, rate, alone: lane(plan.alone), drafted: lane(plan.drafted), over: shown >= plan.length };
}

/** The rejected draft token that is asked about: the first one that is a word for a word, else the first one; -1 without any. */
function askedOf({ tokens }) {
  const isWord = (text) => /^\s*\p{L}{2,}$/u.test(text);
  const rejected = tokens.flatMap((token, at) => (token.rejected === null ? [] : [at]));
  return rejected.find((at) => isWord(tokens[at].rejected) && isWord(tokens[at].label)) ?? rejected[0] ?? -1;
}
