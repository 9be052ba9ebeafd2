/**
 * What if: what each method would have done with a draft token, and up to where a run would be the same with another method
 * or lenience. Reads what a trace recorded; computes no decision and runs no model. The bar for it is in fork_bar.js.
 */

import { DASH, count, el, finite, isExamined, list, number, quoted, signed, string } from "../shared/dom.js";

/** A lenience with at most three decimals. */
export function lenienceText(value) {
  if (!Number.isFinite(value)) return DASH;
  const size = Math.abs(value);
  if (size > 0 && size < 0.0005) return number(value);
  const short = Number(size.toFixed(3));
  return signed(value, String(Number.isInteger(short) ? Number(size.toFixed(6)) : short)); // 0.9995 is not 1
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
  if (run.temperature === 0 && run.method === "speed") return null; // it ignores the lenience there
  if (own.flips.length === 0) return "It would have been " + (token.accepted ? "accepted" : "rejected") + " at every lenience.";
  const nearest = own.flips.reduce((best, flip) => (Math.abs(flip - run.lenience) < Math.abs(best - run.lenience) ? flip : best));
  return (nearest > run.lenience ? "From lenience " + lenienceText(nearest) + " on" : "Below lenience " + lenienceText(nearest)) +
    " it would have been " + (token.accepted ? "rejected" : "accepted") + ".";
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
  const name = el("th", "", titles(one.name), one.own && el("span", "sw-own", " this run"));
  name.scope = "row";
  return el("tr", (accepted ? "sw-yes" : "sw-no") + (one.own ? " is-own" : ""), name,
    el("td", "", isFree(one.name) ? DASH : lenienceText(one.lenience)),
    el("td", "sw-scale", bar, el("span", "sv-spoken", number(one.acceptance))),
    el("td", "sw-verdict", glyph, el("span", "sv-spoken", accepted ? "accepted" : "rejected")),
    el("td", "", one.flips.map(lenienceText).join(", ") || DASH));
}

/** Whether a method has one model alone, and no lenience. */
export const isFree = (method) => method === "drafter_only" || method === "verifier_only";
const isAlone = (run) => isFree(run.method);

/** Whether there is something to say about other methods at a token: what they would have done, or why that is not known. */
export const tellsWhatIf = (token, run) => isAlone(run) || (isExamined(token) && recordedWhatIfs(token, run).length > 0);

/** What every method would have done here, at the same coin, where `tellsWhatIf`. */
export function whatIfNodes(token, run, methods) {
  if (isAlone(run)) {
    return el("p", "sv-caption sw-unknown", "Other methods are not known here: only one of the two models ran.");
  }
  const rows = recordedWhatIfs(token, run);
  const titles = (name) => (Object.hasOwn(methods, name) && methods[name].title) || name;
  const heading = (words) => Object.assign(el("th", "", words), { scope: "col" });
  const head = el("tr", "", ...["method", "α", "chance", "", "critical α"].map(heading));
  head.children[3].append(el("span", "sv-spoken", "verdict"));
  const own = rows.find((one) => one.own);
  return el("section", "sw-strip",
    own && !own.known && el("p", "sw-own-words", "The critical lenience is not computed for a rule of this kind."),
    own?.known && el("p", "sw-own-words", titles(own.name) + ": " + flipWords(own.flips, token.accepted, own.lenience) + "."),
    el("table", "sv-numbers sw-table", el("thead", "", head),
      el("tbody", "", ...rows.map((one) => whatIfRow(one, token, titles)))));
}

// ---- where a whole run would have changed

/**
 * What a wish, {method, lenience}, changes about one token: "kept", "rejected" (its draft token), "redrawn" (perhaps), "unknown"
 * where the record does not tell, or null.
 */
function changeAt(token, run, wish) {
  const one = recordedWhatIfs(token, run).find(({ name }) => name === wish.method);
  if (!one) return list(run.alternatives).length === 0 || wish.method !== run.method ? "unknown" : null;
  const [low, high] = [one.lenience, wish.lenience].sort((a, b) => a - b);
  if (!one.known && low < high) return "unknown";
  const turns = one.flips.filter((flip) => low < flip && flip <= high).length;
  const accepted = (token.coin < one.acceptance) === (turns % 2 === 0);
  if (accepted !== token.accepted) return accepted ? "kept" : "rejected";
  if (accepted) return null;
  if (!one.own) return "redrawn"; // another target
  const kept = list(token.what_if.kept);
  return kept.length === 2 && !(kept[0] <= wish.lenience && wish.lenience < kept[1]) ? "redrawn" : null;
}

/** The first token that a wish changes, or may change: {index, change}; null where the text is the same to its end. */
export function firstChange(items, run, wish) {
  if (wish.method === run.method && (wish.lenience === run.lenience || isFree(run.method))) return null;
  for (const { token, index } of items) {
    const change = changeAt(token, run, wish);
    if (change) return { index, change };
  }
  return null;
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

/** Whether it is known of a run's tokens where its own rule would have decided otherwise. */
export const tellsChange = (items, run) => items.some(({ token }) => ownWhatIf(token, run)?.known);

/** What a wish changes, in words and names; `span` is the range of leniences offered, `title` the method's where it is another. */
export function changeSentence(items, run, wish, found, span, title) {
  const [from, to] = title ? [0, 0] : sameText(items, run, span);
  const known = !title && tellsChange(items, run);
  const where = from <= span[0] && to >= span[1] ? "at every lenience on this slider"
    : "from α = " + lenienceText(from) + " to " + lenienceText(to);
  if (!title && wish.lenience === run.lenience) {
    return ["This run was made at α = " + lenienceText(run.lenience) + "." + (known ? " Its text is the same " + where + "." : "")];
  }
  const at = (title ? "With " + title + (isFree(wish.method) ? "" : " at α = " + lenienceText(wish.lenience))
    : "At α = " + lenienceText(wish.lenience)) + " ";
  if (!found) return [at + "nothing would change" + (known && from <= wish.lenience && wish.lenience <= to ? ": the text is the same " + where : "") + "."];
  const { index, change } = found;
  if (change === "unknown") return [at + "the text may change from " + (index === 0 ? "its first token" : "token " + (index + 1)) + " on: where is not recorded."];
  const { token } = items[index];
  const lead = index === 0 ? "the text changes at its first token: " : "the text stays the same for " + count(index, "token") + "; then ";
  const verdict = { kept: " would have been accepted.", rejected: " would have been rejected.", redrawn: " may be resampled differently." };
  return [at + lead + "“", quoted(change === "kept" ? token.draft ?? token : token), "”" + verdict[change]];
}
