/** The decision on a token, drawn as in the tab One run: bars, the acceptance probability and, after the reveal, the coin. */

import { el } from "../../shared/dom.js";
import { chip } from "../../race/chips.js";
import { picture } from "../../trace_view/picture.js";
import { context } from "./parts.js";

export function coinPicture({ token, method, lenience, ...place }, { language, methods }) {
  const { say } = language;
  const words = { ...Object.fromEntries(["verifier", "drafter", "target", "coin", "kept", "rejected", "stretched"].map((name) => [name, say(name)])),
    eased: say("verifier"), stretchedTarget: say("stretched"), chance: say("kept"), written: language.percent, pair: language.percents };
  const draw = (thrown) => picture(token, { method, lenience }, { ratio: methods[method]?.tree.ratio, words, thrown });
  const at = el("span", "sl-here", chip(token.draft.text));
  const bars = el("div", "sl-coin", draw(false));
  const node = el("figure", "sl-figure", context(place, language, at), bars);
  function reveal(moves) {
    bars.replaceChildren(draw(true));
    bars.classList.toggle("moves", moves);
    at.replaceChildren(chip(token.draft.text, token.accepted ? "kept" : "rejected"), token.accepted ? "" : " ", token.accepted ? "" : chip(token.label, "own"));
  }
  return { node, reveal };
}
