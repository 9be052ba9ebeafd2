/** The race's sentences and figures, made from the plan. Pure functions, without document. */

import { count } from "../shared/dom.js";

/** At and below this ratio it is not called faster. */
const NO_FASTER = 1.05;

const rounded = (value) => (value >= 9.95 ? value.toFixed(0) : value.toFixed(1));

/** How often faster the drafted lane was. */
const ratioOf = ({ alone, drafted }) => (drafted.end > 0 ? alone.end / drafted.end : 1);
export const isFaster = (plan) => ratioOf(plan) > NO_FASTER;

/** Recorded seconds, with the digits that tell two lanes apart. */
export const seconds = (value) => (value < 10 ? value.toFixed(2) : value.toFixed(1)) + " s";

/** The claim, as [text, is it strong] pieces. */
export function claim(plan) {
  const { alone, drafted } = plan;
  const head = [
    ["Same " + count(alone.tokens.length, "token") + ": ", false],
    [count(drafted.calls, "call"), true],
    [" of the large model instead of " + alone.calls, false],
  ];
  const ratio = ratioOf(plan);
  if (isFaster(plan)) return [...head, [", ", false], [rounded(ratio) + "× as fast", true]];
  if (ratio >= 1 / NO_FASTER) return [...head, [", yet no faster here: guessing took the time that it saved", false]];
  return [...head, [", yet " + ratio.toFixed(1) + "× as fast here: guessing took more time than it saved", false]];
}

/** What a cascade saves beyond that, as [text, is it strong] pieces. */
export const cascadeWords = ({ tokens, calls, lossless, temperature }) => [
  ["A speculative cascade also keeps drafts that are good enough: ", false],
  [count(calls, "call"), true],
  [" for a story of " + count(tokens, "token") + " at temperature " + temperature + ", not the " + lossless + " of lossless decoding. ", false],
];

/** How much slower than it was the show is at a rate. */
export function slower(rate) {
  if (rate >= 1.05) return rounded(rate) + "× slower";
  if (rate > 0 && rate <= 0.95) return rounded(1 / rate) + "× faster";
  return "at its own speed";
}

const TINY = 1e9; // parameters; models that people know have more

/** How small models of such numbers of parameters are, and what follows; "" where they are not tiny. */
export function sizeWords([small, large]) {
  if (!(large < TINY)) return "";
  const millions = (size) => (size / 1e6).toFixed(0) + " million";
  return "Both models are tiny, so that they run on any computer: the drafter has " + millions(small) + " parameters, the verifier "
    + millions(large) + ". Expect wrong answers.";
}

/** Under what conditions it was recorded and how it is shown. */
export function conditions(plan, value) {
  const { drafted, machine, prompts, repetitions, method } = value;
  const length = drafted.draft_length === null ? "" : " up to " + drafted.draft_length;
  const more = plan.pace.slowed.length ? " (" + plan.pace.slowed.join(" and ") + " slower still)" : "";
  return [
    method + ", lossless, at temperature " + drafted.temperature,
    drafted.drafter + " drafts" + length + ", " + drafted.verifier + " checks",
    machine,
    "median of " + repetitions + " recordings, shown " + slower(plan.pace.rate) + more,
    "prompt chosen from " + prompts + " for what it shows",
  ].join(" · ");
}
