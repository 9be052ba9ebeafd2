/** One recorded round: the draft tokens and, at later stages of the step, the check and the decisions. */

import { attributes, el } from "../../shared/dom.js";
import { chip } from "../../race/chips.js";
import { laneOf } from "../../race/schedule.js";
import { context, pause, row } from "./parts.js";

const WORDS = { kept: "kept", rejected: "rejected", unseen: "unreached", own: "replaced" };

export function roundPicture({ stages, round, ...place }, { language, values }) {
  const { say } = language;
  const [{ slots }] = laneOf({ rounds: [round] }).rounds;
  const cards = slots.map((slot) => {
    const words = el("span", "sl-fate", "\u00a0");
    const holder = el("span", "sl-slot", chip(slot.text));
    return { slot, words, holder, node: el("li", "sl-card-of-round", holder, words) };
  });
  const check = el("p", "sl-checking", "");
  const node = el("figure", "sl-figure sl-round", context(place, language),
    attributes(el("ol", "sl-cards-of-round", ...cards.map((card) => card.node)), { "data-testid": "round" }), check);
  if (stages[0] !== "drafted") node.append(timesOf());
  const set = (stage) => {
    node.dataset.stage = stage;
    for (const { slot, words, holder } of cards) {
      const decided = stage === "decided";
      holder.replaceChildren(chip(slot.text, decided ? slot.fate : ""));
      if (decided && slot.instead !== undefined) holder.append(chip(slot.instead, "own instead"));
      words.textContent = decided ? say(WORDS[slot.fate]) : stage === "checked" ? say("checked") : say("drafted");
    }
  };

  /** One call for all beside a call for one, and beside a call for each. */
  function timesOf() {
    const [check, alone, count] = ["check", "alone", "drafted"].map((name) => values[name][1]);
    const each = count * alone;
    const longest = Math.max(each, check);
    const bars = [["one_token", alone, ""], ["at_once", check, "is-answer"], ["one_by_one", each, ""]];
    return el("div", "sl-times", ...bars.map(([word, seconds, more]) =>
      row("verifier " + more, say(word, { count: String(count) }), seconds / longest, language.milliseconds(seconds))));
  }

  set(stages[0]);
  async function reveal(moves) {
    node.classList.add("is-open");
    if (moves && stages[0] === "drafted" && stages[1] === "decided") {
      set("checked");
      await pause(0.7);
    }
    set(stages[1]);
  }
  return { node, reveal };
}
