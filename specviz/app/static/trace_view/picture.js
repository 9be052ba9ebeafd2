/**
 * One decision as a picture: the verifier's bar and the drafter's on one scale; below, the drafter's bar stretched to the full
 * width, solid up to the acceptance probability, and the coin at its value. Computes no decision: the probability is the recorded one.
 */

import { el, finite, percent, percents } from "../shared/dom.js";
import { evaluate } from "../shared/expression.js";

/** Its words; `written` is how a probability is written, `pair` how two that are compared are. */
const ENGLISH = {
  verifier: "verifier",
  drafter: "drafter",
  target: "target",
  eased: "verifier, eased by lenience",
  coin: "coin",
  kept: "accepted",
  rejected: "rejected",
  stretched: "The drafter’s bar again, at full width. Solid: the part that the verifier’s bar covers. The coin is a random number; on the solid part it accepts.",
  stretchedTarget: "The drafter’s bar again, at full width. Solid: the part that the target’s bar covers. The coin is a random number; on the solid part it accepts.",
  chance: "Acceptance probability",
  written: percent,
  pair: percents,
};

/** A bar from 0 to 1 with its words. */
export function bar(className, name, share, { written } = ENGLISH) {
  const fill = el("i", "sv-bar-fill");
  fill.style.width = 100 * Math.min(1, Math.max(0, finite(share))) + "%";
  const label = el("span", "sv-bar-words", name + " " + written(share));
  // Beside a short bar, on a long one.
  label.style.left = share > 0.45 ? "0" : 100 * Math.max(0, finite(share)) + "%";
  label.classList.toggle("is-on", share > 0.45);
  return el("div", "sv-bar-row " + className, fill, label);
}

/**
 * The picture of an examined token, {q, p, pi} those of its draft token. The target has a bar where it is not the verifier's
 * own distribution: where a rule changed it, or where `ratio`, the tree of speculative decoding, is eased. A coin that is not `thrown` yet is not told.
 */
export function picture(token, run, { ratio = null, words = ENGLISH, thrown = true } = {}) {
  const draft = token.draft || token;
  const strict = run.method === "speed";
  const ease = () => draft.q * evaluate(ratio, { q: [draft.q], p: [draft.p] }, finite(run.lenience), 0);
  const eased = strict && ratio ? ease() : null;
  const changed = strict ? eased !== null && run.lenience > 0 : Number.isFinite(draft.pi) && Math.abs(draft.pi - draft.p) > 1e-9;
  const kept = Math.min(1, Math.max(0, finite(token.acceptance)));
  const passed = token.coin < token.acceptance;
  const [coin, chance] = words.pair(token.coin, token.acceptance);
  const solid = el("i", "sv-cover");
  solid.style.width = 100 * kept + "%";
  const mark = thrown && el("u", "sv-coin " + (passed ? "passed" : "failed"));
  const flag = el("span", "sv-coin-words", thrown ? words.coin + " " + coin : "");
  if (thrown) mark.style.left = 100 * finite(token.coin) + "%";
  flag.style.left = "clamp(2.4rem, " + 100 * finite(thrown ? token.coin : 0) + "%, calc(100% - 2.4rem))";
  const node = el("figure", "sv-picture",
    bar("verifier", words.verifier, draft.p, words),
    changed && bar("target", strict ? words.eased : words.target, strict ? Math.min(1, eased) : draft.pi, words),
    bar("drafter", words.drafter, draft.q, words),
    el("div", "sv-coin-line", flag),
    el("div", "sv-stretched", solid, mark),
    el("div", "sv-ends", el("span", "sv-end-kept", words.kept + " " + chance), kept < 1 && el("span", "sv-end-out", words.rejected + " " + words.written(1 - kept))),
    el("figcaption", "sv-caption", changed && !strict ? words.stretchedTarget : words.stretched));
  node.setAttribute("role", "img");
  node.setAttribute("aria-label", words.chance + " " + chance + (thrown ? ", " + words.coin + " " + coin + ": " + (passed ? words.kept : words.rejected) : ""));
  if (thrown) node.dataset.coin = String(token.coin);
  node.dataset.acceptance = String(token.acceptance);
  return node;
}
