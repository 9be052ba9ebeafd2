/**
 * The displays of a ruling (see methods.js) in the playground, each a node with show(ruling, state): figures, the rule in words,
 * the table of the six words, and a thousand simulated tokens.
 */

import { DASH, attributes, compared, el, number, shape } from "../shared/dom.js";
import { methodMark } from "../shared/method_mark.js";
import { WORDS } from "./cases.js";
import { ROUNDING, coinsOf, largest, simulate, total, totalVariation } from "./methods.js";

const THROWS = 1000;
const unrounded = (value) => Number(value.toFixed(12)); // without what rounding left in the last places

const FIGURES = {
  acceptance: ["acceptance rate", "Expected share of the drafter's proposals that are accepted: the sum of q(v) · acceptance(v)."],
  rejection: ["rejection rate", "1 − acceptance rate: the cost that the paper plots."],
  tv_p: ["TV(π, p), from the verifier", "How far what is emitted is from the verifier; 0 is lossless."],
  tv_q: ["TV(π, q), from the drafter", "How far what is emitted is from the drafter."],
};

export function figures() {
  const node = attributes(el("dl", "sp-figures"), { "data-testid": "figures" });
  const values = {};
  for (const [key, [name, why]] of Object.entries(FIGURES)) {
    values[key] = el("dd", "");
    node.append(attributes(el("div", "", el("dt", "", name), values[key]), { title: why, "data-figure": key }));
  }
  const show = (view) => {
    const found = { acceptance: view.acceptanceRate, rejection: 1 - view.acceptanceRate,
      tv_p: totalVariation(view.target, view.p), tv_q: totalVariation(view.target, view.q) };
    for (const [key, value] of Object.entries(found)) {
      values[key].textContent = number(value < ROUNDING ? 0 : value);
      values[key].dataset.exact = value;
    }
  };
  return { node, show };
}

/** The words of those that are trusted, as a list in a sentence. */
const named = (trusted) => WORDS.filter((_, word) => trusted[word]).join(", ");

/** The rule with this case's numbers put in, in one or two sentences. */
function caseSentence(view, method) {
  if (view.method === "drafter_only") return "Every proposal is kept unexamined, so π = q.";
  if (view.method === "verifier_only") return "The drafter is not asked: every token is drawn from p, so π = p.";
  if (view.method === "speed") {
    const word = view.q.indexOf(largest(view.q));
    return "For " + WORDS[word] + ": min(1, " + number(view.p[word]) + " / (" + number(1 - view.lenience) + " × " +
      number(view.q[word]) + ")) = " + number(view.acceptance[word]) + ". No word is trusted or distrusted as such.";
  }
  if (view.trusted === null) return "No word is trusted as such: the coin decides by each word’s chance of being kept.";
  if (Array.isArray(view.score) || view.threshold === null) return wordsSentence(view, method);
  const [score, threshold] = compared(unrounded(view.score), unrounded(view.threshold));
  const trusted = view.trusted[0];
  return method.score_label + " = " + score + (trusted ? " ≥ " : " < ") + method.threshold_label + " = " + threshold +
    (trusted ? ": the drafter is trusted, so π = q." : ": the drafter is not trusted here, so π = p.");
}

function wordsSentence(view, method) {
  const deferred = total(view.q.filter((_, word) => !view.trusted[word]));
  const rule = "A word is trusted where " + (view.threshold === null ? method.formula
    : method.score_label + " ≥ " + method.threshold_label + " = " + number(unrounded(view.threshold)));
  if (view.trusted.every(Boolean)) return rule + ": all are, so π = q.";
  if (!view.trusted.some(Boolean)) return rule + ": none is, so π = p.";
  return rule + ": " + named(view.trusted) + ". The rest of the drafter’s mass, " + number(deferred) + ", is spread as p says.";
}

/** `rowOf` gives the words of the case's method, with its own rule. */
export function ruleBox(methods, rowOf) {
  const title = el("p", "sv-caption");
  const words = attributes(el("p", "sp-rule-words"), { "aria-live": "polite", "data-testid": "rule" });
  const why = el("p", "sv-caption");
  const show = (view, state) => {
    const method = rowOf(state);
    title.replaceChildren(methodMark(view.method, methods) ?? "", method.title + ": " + method.formula);
    words.textContent = caseSentence(view, method);
    why.textContent = method.sentence;
  };
  return { node: el("div", "sv-rule sp-rule", title, words, why), show };
}

/** One row a word: q, p, whether it is trusted, acceptance, residual, π. */
export function outcomeTable() {
  const caption = el("caption", "sp-caption");
  const columns = [["q", "q"], ["p", "p"], ["trusted", "trust\u00aded?"], ["acceptance", "accept\u00adance"],
    ["residual", "resid\u00adual"], ["target", "π"]];
  const heads = columns.map(([, name]) => attributes(el("th", "", name), { scope: "col" }));
  const rows = WORDS.map((word) => {
    const cells = Object.fromEntries(columns.map(([key]) => {
      const cell = { text: el("span", ""), bar: el("span", "sp-cell-bar") };
      cell.node = attributes(el("td", "sp-cell sp-cell-" + key, cell.bar, cell.text), { "data-cell": key });
      return [key, cell];
    }));
    const node = el("tr", "", attributes(el("th", "", word), { scope: "row" }), ...columns.map(([key]) => cells[key].node));
    return { node, cells };
  });
  const node = attributes(el("table", "sp-table", caption,
    el("thead", "", el("tr", "", attributes(el("th", "", "word"), { scope: "col" }), ...heads)), el("tbody", "", ...rows.map((row) => row.node))),
  { "data-testid": "outcome" });
  const show = (view, { temperature }) => {
    caption.textContent = "Word by word, at temperature " + number(temperature);
    rows.forEach(({ cells }, word) => {
      for (const key of ["q", "p", "acceptance", "residual", "target"]) {
        cells[key].text.textContent = inTable(view[key][word]);
        cells[key].node.dataset.exact = view[key][word];
        cells[key].bar.style.setProperty("--share", view[key][word]);
      }
      cells.trusted.text.textContent = view.trusted === null ? DASH : view.trusted[word] ? "yes" : "no";
    });
  };
  return { node, show };
}

/** A probability in as few places as tell it from nothing and from certainty. */
function inTable(value) {
  if (value < ROUNDING || value > 1 - ROUNDING) return String(Math.round(value));
  return value.toFixed(value < 0.01 || value > 0.99 ? 3 : 2);
}

const DOTS = 10; // dots in a column, so that a column is one hundredth of all throws
const COLUMNS = 100;

/** A path with one mark for each throw from the `from`-th on: a dot if accepted, a cross if resampled. */
function marks(accepted, from, count) {
  let path = "";
  for (let at = from; at < from + count; at += 1) {
    const x = Math.floor(at / DOTS) + 0.5;
    const y = DOTS - (at % DOTS) - 0.5;
    path += accepted ? "M" + x + " " + y + "h0" : "M" + (x - 0.3) + " " + (y - 0.3) + "l.6 .6m0 -.6l-.6 .6";
  }
  return path;
}

/** One word's throws as marks on the axis of its probability, and the formula's π as a line across it. */
function throwRow(word) {
  const picture = shape("svg", { viewBox: "0 0 " + COLUMNS + " " + (DOTS + 1), class: "sp-marks", role: "img" });
  const kept = shape("path", { class: "sp-dots", transform: "translate(0 .5)" });
  const redone = shape("path", { class: "sp-crosses", transform: "translate(0 .5)" });
  const line = shape("path", { class: "sp-formula" });
  picture.append(shape("rect", { width: COLUMNS, height: DOTS + 1, class: "sp-field-of-marks" }), kept, redone, line);
  const words = el("span", "sp-throw-words");
  const node = attributes(el("div", "sp-throw", el("span", "sp-word", word), picture, words), { "data-throw": word });
  const show = (accepted, resampled, target) => {
    kept.setAttribute("d", marks(true, 0, accepted));
    redone.setAttribute("d", marks(false, accepted, resampled));
    line.setAttribute("d", "M" + COLUMNS * target + " 0v" + (DOTS + 1));
    const seen = ((accepted + resampled) / THROWS).toFixed(3);
    words.replaceChildren(el("b", "", seen), " · π " + target.toFixed(3));
    picture.setAttribute("aria-label", word + ": " + accepted + " accepted and " + resampled + " resampled, a share of " +
      seen + "; the formula says " + target.toFixed(3));
    attributes(node, { "data-accepted": accepted, "data-resampled": resampled });
  };
  return { node, show };
}

/** A thousand tokens thrown by the rule beside what the formula says. */
export function throwsPanel(onAgain) {
  const rows = WORDS.map(throwRow);
  const again = attributes(el("button", "sp-button", "Throw again"), { type: "button", "data-testid": "again" });
  again.addEventListener("click", onAgain);
  const key = el("p", "sp-key");
  const node = attributes(el("section", "sp-throws", el("div", "sp-throws-head", el("h2", "", "1,000 simulated tokens"), again), key,
    ...rows.map((row) => row.node)), { "aria-label": "Simulated tokens" });
  const show = (view, { seed }) => {
    const thrown = simulate(view, coinsOf(seed, THROWS));
    const counts = WORDS.map(() => [0, 0]);
    for (const { word, accepted } of thrown) counts[word][accepted ? 0 : 1] += 1;
    rows.forEach((row, word) => row.show(...counts[word], view.target[word]));
    const kept = total(counts.map(([accepted]) => accepted));
    key.replaceChildren(el("span", "sp-key-dot", kept + " accepted drafts"), el("span", "sp-key-cross", THROWS - kept + " resampled"),
      el("span", "sp-key-line", "what the formula says, π"));
  };
  return { node, show };
}
