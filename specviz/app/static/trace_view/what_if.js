/**
 * What if: what each method would have done with a draft token, and how far a finished run would have stayed the same
 * at another lenience. Reads what a trace recorded; computes no decision and runs no model.
 */

import { DASH, count, el, finite, isExamined, list, number, quoted, signed, string } from "../shared/dom.js";

/** A lenience with at most three decimals. */
function lenienceText(value) {
  if (!Number.isFinite(value)) return DASH;
  const size = Math.abs(value);
  return size > 0 && size < 0.0005 ? number(value) : signed(value, String(Number(size.toFixed(3))));
}

/** What a token recorded of each method: [{name, lenience, acceptance, flips, own}], empty without a record. */
function recordedWhatIfs(token, run) {
  const { acceptance, flips } = token.what_if ?? {};
  return list(run.alternatives).map((one, at) => ({
    name: string(one?.method), lenience: one?.lenience, acceptance: list(acceptance)[at],
    flips: list(list(flips)[at]).filter(Number.isFinite), known: list(flips)[at] !== null, own: one?.method === run.method,
  })).filter((one) => Number.isFinite(one.acceptance));
}

const ownWhatIf = (token, run) => recordedWhatIfs(token, run).find((one) => one.own);

/** Where on the scale of leniences a verdict holds, given what it is at one of them. */
function flipWords(flips, accepted, lenience) {
  const texts = flips.map(lenienceText);
  const before = flips.filter((flip) => flip <= lenience).length % 2 ? !accepted : accepted;
  if (flips.length === 0) return accepted ? "accepted at every lenience" : "rejected at every lenience";
  if (flips.length === 1) return before ? "accepted up to α = " + texts[0] : "accepted from α = " + texts[0] + " on";
  return before ? "accepted up to α = " + texts[0] + " and from " + texts[1] + " on"
    : "accepted from α = " + texts[0] + " up to " + texts[1];
}

/** Where the run's own method would have decided otherwise about a token, as a sentence; null where that was not recorded. */
export function flipSentence(token, run) {
  const own = ownWhatIf(token, run);
  if (!own?.known) return null;
  if (own.flips.length === 0) return "It would have been " + (token.accepted ? "kept" : "rejected") + " at every lenience.";
  const nearest = own.flips.reduce((best, flip) => (Math.abs(flip - run.lenience) < Math.abs(best - run.lenience) ? flip : best));
  return (nearest > run.lenience ? "From lenience " + lenienceText(nearest) + " on" : "Below lenience " + lenienceText(nearest)) +
    " it would have been " + (token.accepted ? "rejected" : "kept") + ".";
}

// ---- the table in the inspector

function whatIfRow(one, token, titles) {
  const accepted = token.coin < one.acceptance;
  const fill = el("span", "sw-fill");
  fill.style.width = 100 * Math.min(1, Math.max(0, one.acceptance)) + "%";
  const tick = el("span", "sw-coin");
  tick.style.left = 100 * finite(token.coin) + "%";
  const bar = el("div", "sw-bar", fill, tick);
  bar.title = "chance " + number(one.acceptance) + ", coin " + number(token.coin);
  const glyph = el("span", "", accepted ? "✓" : "✗");
  for (const picture of [bar, glyph]) picture.setAttribute("aria-hidden", "true");
  const free = one.name === "drafter_only" || one.name === "verifier_only"; // of lenience
  const name = el("th", "", titles(one.name), one.own && el("span", "sw-own", " this run"));
  name.scope = "row";
  return el("tr", (accepted ? "sw-yes" : "sw-no") + (one.own ? " is-own" : ""), name,
    el("td", "", free ? DASH : lenienceText(one.lenience)),
    el("td", "sw-scale", bar, el("span", "sv-spoken", number(one.acceptance))),
    el("td", "sw-verdict", glyph, el("span", "sv-spoken", accepted ? "accepted" : "rejected")),
    el("td", "", one.flips.map(lenienceText).join(", ") || DASH));
}

const isAlone = (run) => run.method === "drafter_only" || run.method === "verifier_only";

/** Whether there is something to say about other methods at a token: what they would have done, or why that is not known. */
export const tellsWhatIf = (token, run) => isAlone(run) || (isExamined(token) && recordedWhatIfs(token, run).length > 0);

/** What every method would have done here, at the same coin, where `tellsWhatIf`. */
export function whatIfNodes(token, run, methods) {
  if (isAlone(run)) {
    return el("p", "sv-caption sw-unknown", "What the other methods would have done here is not known: only one of the two models ran.");
  }
  const rows = recordedWhatIfs(token, run);
  const titles = (name) => (Object.hasOwn(methods, name) && methods[name].title) || name;
  const heading = (words) => Object.assign(el("th", "", words), { scope: "col" });
  const head = el("tr", "", ...["method", "α", "chance", "", "flips at α"].map(heading));
  head.children[3].append(el("span", "sv-spoken", "verdict"));
  const own = rows.find((one) => one.own);
  return el("section", "sw-strip",
    own && !own.known && el("p", "sw-own-words", "At which lenience the rule would decide otherwise is not worked out for a rule of this kind."),
    own?.known && el("p", "sw-own-words", titles(own.name) + ": " + flipWords(own.flips, token.accepted, own.lenience) + "."),
    el("table", "sv-numbers sw-table", el("thead", "", head),
      el("tbody", "", ...rows.map((one) => whatIfRow(one, token, titles)))));
}

// ---- the slider over a finished run

/** What another lenience changes about one token: "kept", "rejected", "redrawn" (perhaps), or null. */
function changeAt(token, run, lenience) {
  const own = ownWhatIf(token, run);
  if (!own || lenience === run.lenience) return null;
  const [low, high] = [run.lenience, lenience].sort((a, b) => a - b);
  if (own.flips.filter((flip) => low < flip && flip <= high).length % 2) return token.accepted ? "rejected" : "kept";
  const kept = list(token.what_if.kept);
  return kept.length === 2 && !(kept[0] <= lenience && lenience < kept[1]) ? "redrawn" : null;
}

/** The leniences around the run's own, from the first up to the second, at which its text is the same. */
function sameText(items, run, [low, high]) {
  let [from, to] = [low, high];
  for (const { token } of items) {
    for (const flip of ownWhatIf(token, run)?.flips ?? []) {
      if (flip <= run.lenience) from = Math.max(from, flip);
      else to = Math.min(to, flip);
    }
    const kept = list(token.what_if?.kept);
    if (kept.length === 2) [from, to] = [Math.max(from, kept[0]), Math.min(to, kept[1])];
  }
  return [from, to];
}

/** What happens at a lenience, in words and names. */
function whatIfSentence(items, run, lenience, range, index, change) {
  const [from, to] = sameText(items, run, range);
  const span = from <= range[0] && to >= range[1] ? "at every lenience on this slider"
    : "from α = " + lenienceText(from) + " to " + lenienceText(to);
  if (lenience === run.lenience) {
    return ["This run was made at α = " + lenienceText(lenience) + ". Its text is the same " + span + "."];
  }
  const at = "At α = " + lenienceText(lenience) + " ";
  if (!change) return [at + "nothing would change" + (from <= lenience && lenience <= to ? ": the text is the same " + span : "") + "."];
  const { token } = items[index];
  const lead = index === 0 ? "the very first token is another matter: " : "the text stays the same for " + count(index, "token") + "; then ";
  const verdict = { kept: " would have been kept.", rejected: " would have been rejected.", redrawn: " may be resampled differently." };
  return [at + lead + "“", quoted(change === "kept" ? token.draft ?? token : token), "”" + verdict[change]];
}

/**
 * The slider: shown under a run that has ended and recorded what it needs. Up to the first change the text stays as it
 * is, the change is outlined in its new look, and all that follows is greyed: what would follow is not known.
 */
export function createWhatIf(section, text, methods) {
  const slider = section.querySelector('input[type="range"]');
  const field = section.querySelector('input[type="number"]');
  const words = section.querySelector(".sw-words");
  let run, ended, items, range;

  function reset() {
    [run, ended, items, range] = [{}, false, [], null];
    section.hidden = true;
  }

  function add(entry) {
    if (entry?.type === "run") run = entry;
    else if (entry?.type === "end") ended = true;
  }

  /** Offer the slider over these tokens, or take it away and what it did. */
  function ready(shown) {
    const offered = Object.hasOwn(methods, run.method) ? list(methods[run.method].range) : [];
    const able = ended && offered.length === 2 && offered[0] < offered[1] && Number.isFinite(run.lenience) &&
      shown.some(({ token }) => ownWhatIf(token, run)?.known);
    clear();
    items = able ? shown : [];
    section.hidden = !able;
    if (!able) return;
    range = [Math.min(offered[0], run.lenience), Math.max(offered[1], run.lenience)];
    for (const input of [slider, field]) [input.min, input.max] = range.map(String);
    slider.step = String((range[1] - range[0]) / 100);
    set(run.lenience);
  }

  const draftOf = (index) => text.querySelector('.sv-draft[data-for="' + index + '"]');

  function clear() {
    const looks = ["sw-beyond", "sw-turned", "is-kept", "is-rejected", "is-redrawn"];
    for (const node of text.querySelectorAll(".sw-beyond, .sw-turned")) node.classList.remove(...looks);
  }

  function set(lenience, from = null) {
    clear();
    const changes = items.map(({ token }) => changeAt(token, run, lenience));
    const index = changes.findIndex((change) => change !== null);
    const change = index < 0 ? null : changes[index];
    if (change) {
      for (const { node, index: at } of items.slice(index)) {
        if (at > index || change === "kept") node.classList.add("sw-beyond");
        if (at > index) draftOf(at)?.classList.add("sw-beyond");
      }
      const turned = change === "kept" ? draftOf(index) : items[index].node;
      turned?.classList.add("sw-turned", "is-" + change);
    }
    if (from !== field) field.value = String(Number(lenience.toFixed(4)));
    if (from !== slider) slider.value = String(lenience);
    slider.setAttribute("aria-valuetext", "α = " + lenienceText(lenience));
    words.replaceChildren(...whatIfSentence(items, run, lenience, range, index, change));
  }

  for (const input of [slider, field]) {
    input.addEventListener("input", () => {
      const lenience = Number.parseFloat(input.value);
      if (Number.isFinite(lenience)) set(Math.min(Math.max(lenience, range[0]), range[1]), input);
    });
  }
  section.querySelector(".sw-reset").addEventListener("click", () => set(run.lenience));
  return { reset, add, ready };
}
