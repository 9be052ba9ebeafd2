/**
 * The inspector: all that the trace records of one token, as nodes. Computes no decision.
 */

import { DASH, compared, el, finite, isExamined, list, nameOf, number, quoted } from "../shared/dom.js";
import { whatIfNodes } from "./what_if.js";

/** The verdict on a token, in words. */
function verdict(item, run) {
  const { token } = item;
  if (run.method === "drafter_only") return ["Written by the drafter."];
  if (!token.accepted && !token.draft) return ["Written by the verifier."];
  if (token.accepted) return ["Drafted and accepted."];
  return ["Rejected ", quoted(token.draft), "; resampled by the verifier as ", quoted(token), "."];
}

/** The rule's own numbers, in one sentence. */
function ruleSentence(token, run, method) {
  if (run.method === "drafter_only") return "Nothing was examined: every draft is kept and the verifier never runs.";
  if (run.method === "verifier_only") return "Nothing was examined: the verifier writes every token itself.";
  if (run.method === "speed") return "No deferral rule: the two probabilities of the draft decide.";
  const rule = token.rule;
  if (!rule || !Number.isFinite(rule.score) || !Number.isFinite(rule.threshold)) return "The rule left no numbers here.";
  const [score, threshold] = compared(rule.score, rule.threshold);
  return (rule.trusted ? "Trusted: " : "Not trusted: ") + (method.score_label || "score") + " = " + score +
    (rule.trusted ? " ≥ " : " < ") + (method.threshold_label || "threshold") + " = " + threshold + ".";
}

/** How the acceptance probability came about, with the numbers of the draft that was examined. */
function acceptanceSentence(token, run) {
  const draft = token.draft || token;
  const strict = run.method === "speed";
  const formula = strict ? "min(1, p / ((1 − α) q))" : "min(1, π / q)";
  const numbers = strict
    ? number(draft.p) + " / (" + number(1 - finite(run.lenience)) + " × " + number(draft.q) + ")"
    : number(draft.pi) + " / " + number(draft.q);
  return "acceptance = " + formula + " = min(1, " + numbers + ") = " + number(token.acceptance);
}

/** The acceptance probability as a bar from 0 to 1, and the coin as a tick on it. */
export function gauge(token) {
  const [coin, acceptance] = compared(token.coin, token.acceptance);
  const passed = token.coin < token.acceptance;
  const words = "Coin " + coin + (passed ? " < " : " ≥ ") + acceptance + ": " + (passed ? "accepted" : "rejected");
  const fill = el("span", "sv-gauge-fill");
  fill.style.width = 100 * finite(token.acceptance) + "%";
  const tick = el("span", "sv-gauge-coin");
  tick.style.left = 100 * finite(token.coin) + "%";
  const scale = el("div", "sv-scale", el("span", "", "0"), el("span", "", "acceptance probability"), el("span", "", "1"));
  const picture = el("div", "", el("div", "sv-gauge " + (passed ? "passed" : "failed"), fill, tick), scale);
  picture.setAttribute("aria-hidden", "true");
  return el("div", "sv-coin", el("p", "sv-coin-words", words), picture);
}

/** The draft tokens of the token's round: accepted, rejected, or never examined. */
function proposals(item) {
  const { round, offset } = item;
  const drafted = list(round.proposals);
  if (drafted.length === 0) return null;
  const strip = el("p", "sv-proposals", el("span", "sv-caption", "drafted "));
  drafted.forEach((proposal, at) => {
    const fate = at < round.accepted ? "kept" : at < round.examined ? "rejected" : "unseen";
    const chip = el(fate === "rejected" ? "del" : "span", "sv-chip " + fate, el("bdi", "", nameOf(proposal)));
    chip.title = { kept: "accepted", rejected: "rejected", unseen: "never examined" }[fate];
    if (at === offset) chip.classList.add("is-here");
    strip.append(chip);
  });
  return strip;
}

/** q, p and pi of the emitted token and of the rejected draft. */
function probabilities(token) {
  const row = (word, one) =>
    el("tr", "", el("th", "", word + " ", quoted(one)), ...["q", "p", "pi"].map((key) => el("td", "", number(one[key]))));
  const head = el("tr", "", el("th", ""), el("th", "", "q"), el("th", "", "p"), el("th", "", "π"));
  return el("table", "sv-numbers", el("thead", "", head),
    el("tbody", "", row("emitted", token), token.draft ? row("rejected", token.draft) : null));
}

/** One model's most likely tokens as bars; the emitted token and the rejected draft are marked in it. */
function topColumn(token, key, title) {
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
    const row = el("div", "sv-row", bar, el(draft ? "del" : "span", "sv-row-name", el("bdi", "", nameOf(entry))),
      el("span", "sv-row-number", number(entry.probability)));
    row.title = nameOf(entry);
    row.classList.toggle("is-emitted", entry.id === token.id);
    row.classList.toggle("is-draft", draft);
    row.classList.toggle("is-beyond", entry.beyond === true);
    column.append(row);
  }
  return column;
}

function topList(token) {
  if (!token.top || typeof token.top !== "object") {
    return el("p", "sv-caption sv-no-top", "Inspection was off for this run.");
  }
  return el("div", "sv-tops", topColumn(token, "q", "q · drafter"), topColumn(token, "p", "p · verifier"),
    topColumn(token, "pi", "π · target"));
}

/** The whole inspector for one token, as a list of nodes. */
export function inspectorNodes(item, run, methods) {
  const { token, round, index } = item;
  const examined = isExamined(token);
  const method = Object.hasOwn(methods, run.method) ? methods[run.method] : {};
  const position = ["token " + (index + 1), "round " + (finite(round.index) + 1), "position " + (token.position ?? DASH),
    "id " + (token.id ?? DASH)].join(" · ");
  const rule = el("div", "sv-rule",
    method.title && el("p", "sv-caption", method.title + (method.formula ? ": " + method.formula : "")),
    el("p", "sv-rule-words", ruleSentence(token, run, method)),
    examined && el("p", "sv-caption", acceptanceSentence(token, run)));
  rule.title = method.sentence || "";
  return [
    el("h3", "sv-token-name " + (token.accepted ? "accepted" : "resampled"), quoted(token)),
    el("p", "sv-caption sv-place", position),
    el("p", "sv-verdict", ...verdict(item, run)),
    examined && gauge(token),
    rule,
    whatIfNodes(token, run, methods),
    proposals(item),
    probabilities(token),
    topList(token),
  ].filter(Boolean);
}
