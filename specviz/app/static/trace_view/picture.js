/**
 * One decision as a picture: the verifier's bar and the drafter's on one scale; below, the drafter's bar stretched to the full
 * width, solid as far as it is covered, and the coin where it fell. Computes no decision: the cover is the acceptance recorded.
 */

import { el, finite, percent, percents } from "../shared/dom.js";

/** A bar from 0 to 1 with its words. */
function bar(className, words, share) {
  const fill = el("i", "sv-bar-fill");
  fill.style.width = 100 * Math.min(1, Math.max(0, finite(share))) + "%";
  const label = el("span", "sv-bar-words", words + " " + percent(share));
  // Beside a short bar, on a long one.
  label.style.left = share > 0.45 ? "0" : 100 * Math.max(0, finite(share)) + "%";
  label.classList.toggle("is-on", share > 0.45);
  return el("div", "sv-bar-row " + className, fill, label);
}

/**
 * The picture of an examined token, {q, p, pi} those of its draft token. The target has a bar where it is not the verifier's
 * own distribution: where a rule changed it.
 */
export function picture(token, run) {
  const draft = token.draft || token;
  const strict = run.method === "speed";
  const eased = strict ? finite(draft.p) / Math.max(1e-9, 1 - finite(run.lenience)) : null;
  const changed = strict ? run.lenience > 0 : Number.isFinite(draft.pi) && Math.abs(draft.pi - draft.p) > 1e-9;
  const kept = Math.min(1, Math.max(0, finite(token.acceptance)));
  const passed = token.coin < token.acceptance;
  const [coin, chance] = percents(token.coin, token.acceptance);
  const solid = el("i", "sv-cover");
  solid.style.width = 100 * kept + "%";
  const mark = el("u", "sv-coin " + (passed ? "passed" : "failed"));
  mark.style.left = 100 * finite(token.coin) + "%";
  const flag = el("span", "sv-coin-words", "coin " + coin);
  flag.style.left = "clamp(2.4rem, " + 100 * finite(token.coin) + "%, calc(100% - 2.4rem))";
  const node = el("figure", "sv-picture",
    bar("verifier", "verifier", draft.p),
    changed && bar("target", strict ? "verifier, eased by lenience" : "target", strict ? Math.min(1, eased) : draft.pi),
    bar("drafter", "drafter", draft.q),
    el("div", "sv-coin-line", flag),
    el("div", "sv-stretched", solid, mark),
    el("div", "sv-ends", el("span", "sv-end-kept", "kept " + chance), kept < 1 && el("span", "sv-end-out", "rejected " + percent(1 - kept))),
    el("figcaption", "sv-caption", "The drafter’s bar, stretched. Solid: the part that the " + (changed && !strict ? "target’s" : "verifier’s") + " bar covers too."));
  node.setAttribute("role", "img");
  node.setAttribute("aria-label", "Chance of keeping " + chance + ", coin " + coin + ": " + (passed ? "kept" : "rejected"));
  node.dataset.coin = String(token.coin);
  node.dataset.acceptance = String(token.acceptance);
  return node;
}
