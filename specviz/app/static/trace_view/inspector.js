/**
 * The inspector: everything that the trace records about one token; first a picture and a sentence, then numbers, folded. Computes
 * no decision.
 */

import { DASH, chip, compared, count, el, finite, isExamined, list, nameOf, number, percent, percents, quoted } from "../shared/dom.js";
import { withRule } from "../shared/rules.js";
import { bar, picture } from "./picture.js";
import { flipSentence, tellsWhatIf, whatIfNodes } from "./what_if.js";

/** The verdict on a token, as a heading. */
function verdict({ token }, run) {
  if (run.method === "drafter_only") return [chip(token, "kept"), " from the drafter"];
  if (!token.accepted && !token.draft) return [chip(token, "own"), " from the verifier"];
  if (token.accepted) return [chip(token, "kept"), isExamined(token) ? " accepted" : " drafted"];
  return [chip(token.draft, "out"), " → ", chip(token, "own")];
}

/** What happened, in plain words. */
function sentence({ token }, run, method) {
  if (run.method === "drafter_only") return ["Written by the drafter alone: nobody checked it."];
  if (!isExamined(token)) {
    if (token.accepted) return ["Drafted, and kept without a check."];
    return [run.method === "verifier_only" ? "" : "The drafter proposed nothing here. ", "Written by the verifier itself: one call, one token."];
  }
  const draft = token.draft || token;
  const [coin, chance] = percents(token.coin, token.acceptance);
  const named = chip(draft, token.accepted ? "kept" : "out");
  const trusted = token.rule?.trusted;
  if (run.temperature === 0) return greedySentence(token, named, trusted);
  const lead = trusted === true ? "The rule trusts the drafter here. " : trusted === false ? "The rule leaves this to the verifier. " : "";
  const gave = [lead, "The drafter gave ", named, " ", el("b", "", percent(draft.q)), ", the verifier ",
    ...(draft.p < draft.q && draft.p < 0.9 && percent(draft.p) !== percent(draft.q) ? ["only "] : []), el("b", "", percent(draft.p)), ...targets(draft, run, method), ". "];
  if (method.shares_noise && draft.q < 1) gave.push("Both drew with the same noise. "); // at q = 1 nothing is drawn: a lookup, or greedy drafts
  if (method.matches && token.accepted) return [...gave, "The verifier drew its own token, and it was the same one, so the draft stayed."];
  if (method.matches) return [...gave, "The verifier drew ", chip(token, "own"), " itself, so the draft was rejected."];
  if (token.accepted && token.acceptance >= 1) return [...gave, "It is always accepted."];
  const odds = ["It is accepted with a chance of ", el("b", "", chance), "; the coin showed " + coin + ", "];
  if (token.accepted) return [...gave, ...odds, "so it stayed."];
  const isVerifier = run.method === "speed" || (trusted === false && method.tree?.test && !judgesTokens(method.tree.test));
  const guide = isVerifier ? "the verifier" : "the rule’s target π";
  return [...gave, ...odds, "so it was rejected. ", chip(token, "own"), " was drawn among the tokens that " + guide + " finds likelier than the drafter does."];
}

/** Whether a rule judges each token by itself. Else π is p where it does not trust the drafter. */
const judgesTokens = ({ name, parts }) => name === "(v)" || list(parts).some(judgesTokens);

/** The target's probability of a draft token, where a rule makes it another one than both models'. */
function targets(draft, run, method) {
  const same = [draft.q, draft.p].some((value) => percent(value) === percent(draft.pi));
  return run.method === "speed" || method.tree?.ratio || same || !Number.isFinite(draft.pi) ? [] : [", the rule’s target π ", el("b", "", percent(draft.pi))];
}

/** What happened at temperature 0, where each model names its favourite and no coin decides. */
function greedySentence(token, named, trusted) {
  const favourite = list(token.top?.p)[0];
  const agreed = favourite && favourite.id === (token.draft || token).id;
  if (agreed) return ["Both models’ favourite is ", named, ", so it is accepted."];
  if (token.accepted && trusted && favourite) {
    const sure = likeliness(token, "q", token);
    return ["The verifier would have written ", chip(favourite, "own"), "; the rule trusts the drafter", Number.isFinite(sure) ? ", " + percent(sure) + " sure," : "",
      " with ", named, ". At temperature 0 no coin is thrown."];
  }
  const verifiers = favourite ? ["; the verifier’s is ", chip(favourite, "own")] : [];
  const verdict = token.accepted ? ". It is accepted."
    : (trusted === false ? ". The rule leaves this to the verifier" : ". They differ") + ", so the verifier’s is written.";
  return ["At temperature 0 no coin is thrown. The drafter’s favourite is ", named, ...verifiers, verdict];
}

/** One model's probability of a token at temperature 1, where it was recorded. */
const likeliness = (token, key, { id }) => list(token.top?.[key]).find((entry) => entry.id === id)?.probability;

/** Both models' probabilities at temperature 1 of the draft token and of the verifier's favourite, where they were recorded. */
function favourites(token) {
  const draft = token.draft || token;
  const others = list(token.top?.p).slice(0, 1).filter(({ id }) => id !== draft.id);
  if (!token.top) return null;
  return el("figure", "sv-picture sv-favourites", ...[draft, ...others].flatMap((one) => [
    el("p", "sv-caption", quoted(one), one === draft ? " drafter’s favourite" : " verifier’s favourite"),
    bar("drafter", "drafter", likeliness(token, "q", one)), bar("verifier", "verifier", likeliness(token, "p", one))]));
}

/** The rule's own numbers, in one sentence. */
function ruleSentence(token, run, method) {
  if (run.method === "drafter_only") return "Nothing was examined: every draft token is kept and the verifier never runs.";
  if (run.method === "verifier_only") return "Nothing was examined: the verifier writes every token itself.";
  if (!isExamined(token)) return "Nothing was examined: the drafter proposed nothing here.";
  if (run.method === "speed") return "No deferral rule: the two probabilities of the draft token decide.";
  if (method.matches) return "No deferral rule: a draft token is kept where the verifier draws the same one.";
  if (method.tree?.ratio) return "No deferral rule: the method computes the chance of keeping the token, and the coin decides.";
  const rule = token.rule;
  if (!rule || !Number.isFinite(rule.score) || !Number.isFinite(rule.threshold)) return "The rule recorded no numbers here.";
  if (method.tree?.test && !method.threshold_label) return (rule.trusted ? "Trusted: the rule holds" : "Not trusted: the rule does not hold") + " for this token.";
  const [score, threshold] = compared(rule.score, rule.threshold);
  return (rule.trusted ? "Trusted: " : "Not trusted: ") + (method.score_label || "score") + " = " + score +
    (rule.trusted ? " ≥ " : " < ") + (method.threshold_label || "threshold") + " = " + threshold + ".";
}

/** How the acceptance probability came about, with the numbers of the draft token that was examined. */
function acceptanceSentence(token, run, method) {
  if (method.shares_noise) return "Acceptance probability = 1 / Σ max(q(y), p(y)·q/p) = " + number(token.acceptance) + "; coin, from the noise: " + number(token.coin) + ".";
  if (method.matches) return "Acceptance probability = p = " + number(token.acceptance) + "; coin, from the verifier’s draw: " + number(token.coin) + ".";
  if (method.tree?.ratio && run.method !== "speed") return "Acceptance probability = " + number(token.acceptance) + "; coin " + number(token.coin) + ".";
  const draft = token.draft || token;
  const strict = run.method === "speed";
  const formula = strict ? "min(1, p / ((1 − α) q))" : "min(1, π / q)";
  const numbers = strict
    ? number(draft.p) + " / (" + number(1 - finite(run.lenience)) + " × " + number(draft.q) + ")"
    : number(draft.pi) + " / " + number(draft.q);
  return "Acceptance probability = " + formula + " = min(1, " + numbers + ") = " + number(token.acceptance) + "; coin " + number(token.coin) + ".";
}

/** The draft tokens of the token's round: kept, rejected, or never examined. */
function roundChips({ round, offset }) {
  const drafted = list(round.proposals);
  if (drafted.length === 0) return null;
  const strip = el("p", "sv-proposals", el("span", "sv-caption", "drafted "));
  drafted.forEach((one, at) => {
    const fate = at < round.accepted ? "kept" : at < round.examined ? "out" : "unseen";
    const node = chip(one, fate);
    node.title = { kept: "accepted", out: "rejected", unseen: "not examined" }[fate];
    node.classList.toggle("is-here", at === offset);
    strip.append(node);
  });
  return strip;
}

/** What block verification would have done in a round. */
function blockSentence(round) {
  const more = round.kept_by_block - round.accepted;
  return "Block verification would have kept " + (more === 0 ? "as many tokens" : count(Math.abs(more), "token") + (more > 0 ? " more" : " fewer")) +
    " of this round, with the same coins.";
}

/** q, p and pi of the emitted token and of the rejected draft token. */
function probabilities(token) {
  const row = (word, one) =>
    el("tr", "", el("th", "", word + " ", quoted(one)), ...["q", "p", "pi"].map((key) => el("td", "", number(one[key]))));
  const head = el("tr", "", el("th", ""), ...[["q", "the drafter’s probability"], ["p", "the verifier’s probability"], ["π", "the probability that the method gives it in the end: its target"]]
    .map(([name, meaning]) => Object.assign(el("th", "", name), { title: meaning })));
  return el("table", "sv-numbers", el("thead", "", head),
    el("tbody", "", row("written", token), token.draft ? row("rejected", token.draft) : null));
}

/**
 * One model's most likely tokens as bars; the written token and the rejected draft token are marked in it. With `take` each of the
 * others is a button that puts it in the written token's place.
 */
function topColumn(token, key, title, take) {
  const column = el("div", "sv-top sv-top-" + key, el("h4", "", title));
  const found = token.top[key];
  if (!Array.isArray(found)) {
    column.append(el("p", "sv-caption", "did not run"));
    return column;
  }
  const rows = found.filter((entry) => entry !== null && typeof entry === "object");
  for (const other of [token, token.draft]) {
    const listed = !other || rows.some((entry) => entry.id === other.id);
    if (!listed && Number.isFinite(other[key])) {
      rows.push({ id: other.id, text: other.text, label: other.label, probability: other[key], beyond: true });
    }
  }
  for (const entry of rows) {
    const bar = el("span", "sv-bar");
    bar.style.width = 100 * finite(entry.probability) + "%";
    const draft = entry.id === token.draft?.id;
    const takes = take && entry.id !== token.id && Number.isInteger(entry.id);
    const row = el(takes ? "button" : "div", "sv-row", bar, el(draft ? "del" : "span", "sv-row-name", el("bdi", "", nameOf(entry))),
      el("span", "sv-row-number", percent(entry.probability)));
    row.title = nameOf(entry);
    if (takes) {
      row.type = "button";
      row.title = "Put " + nameOf(entry) + " here, and go on from there";
      row.setAttribute("aria-label", row.title + ": " + title + " " + percent(entry.probability));
      row.addEventListener("click", () => take(entry));
    }
    row.classList.toggle("is-emitted", entry.id === token.id);
    row.classList.toggle("is-draft", draft);
    row.classList.toggle("is-beyond", entry.beyond === true);
    column.append(row);
  }
  return column;
}

function topList(token, take) {
  if (!token.top || typeof token.top !== "object") {
    return el("p", "sv-caption sv-no-top", "Inspection was off for this run.");
  }
  return el("div", "sv-tops", topColumn(token, "q", "drafter", take), topColumn(token, "p", "verifier", take));
}

/** A part that is folded away, and made only when it is opened; which are open is remembered from token to token. */
function fold(name, words, opened, make) {
  const content = el("div", "sv-fold-in");
  const node = el("details", "sv-fold", el("summary", "", words), content);
  const fill = () => content.childElementCount === 0 && content.append(...make().filter(Boolean));
  node.dataset.fold = name;
  node.open = opened.has(name);
  if (node.open) fill();
  node.addEventListener("toggle", () => {
    if (node.open) fill();
    opened[node.open ? "add" : "delete"](name);
  });
  return node;
}

/**
 * The whole inspector for one token, as a list of nodes; `opened` has the names of the folds that are open, `take` is called with
 * a token that is to be put in the place of this one; null where none can.
 */
export function inspectorNodes(item, run, methods, opened, take = null) {
  const { token, round, index } = item;
  const examined = isExamined(token);
  const method = withRule(Object.hasOwn(methods, run.method) ? methods[run.method] : {}, run.rule);
  const flip = examined ? flipSentence(token, run) : null;
  // Where the verifier's own draw decides, no part of the drafter's bar is the part that is kept.
  const shown = !examined || (method.matches && run.temperature > 0) ? null : run.temperature === 0 ? favourites(token) : picture(token, run, { ratio: method.tree?.ratio });
  return [
    el("p", "sv-caption sv-where", "Why? Token " + (finite(run.continues?.tokens) + index + 1) + ", round " + (finite(round.index) + 1)),
    el("h3", "sv-verdict", ...verdict(item, run)),
    shown,
    el("p", "sv-sentence", ...sentence(item, run, method)),
    flip && el("p", "sv-flip", flip),
    fold("rule", "The rule and its numbers", opened, () => [
      el("p", "sv-rule-words", ruleSentence(token, run, method)),
      method.formula && el("p", "sv-rule", method.formula),
      examined && run.temperature > 0 && el("p", "sv-caption", acceptanceSentence(token, run, method)),
      probabilities(token), roundChips(item), Number.isInteger(round.kept_by_block) && el("p", "sv-caption", blockSentence(round)),
      el("p", "sv-caption", "q: drafter, p: verifier, π: the method’s target; q₁ and p₁ in a rule: at temperature 1. Position " + (token.position ?? DASH) + ", id " + (token.id ?? DASH) + ".")]),
    fold("others", "Other rules, other tokens", opened, () => [
      tellsWhatIf(token, run) && whatIfNodes(token, run, methods),
      el("h4", "sv-likely", "Most likely tokens" + (run.temperature === 0 ? ", at temperature 1" : "")),
      take && token.top && el("p", "sv-caption", "Choose one: the text goes on from there as a branch."), topList(token, take)]),
  ].filter(Boolean);
}
