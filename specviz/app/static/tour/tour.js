/**
 * The guided tour: cards with a question, one control to move, and an answer to uncover. The numbers in an answer are
 * computed with methods.js from the card's own case. Knows the playground's parts, and no server.
 *
 * createTour(host, {methods}) shows one card at a time in the element.
 */

import { PRESETS, START, WORDS, ruled, setRows } from "../playground/cases.js";
import { rangeControl } from "../playground/controls.js";
import { changedTokens, named } from "../playground/displays.js";
import { blockEfficiency, largest, totalVariation } from "../playground/methods.js";
import { createPlayground } from "../playground/playground.js";
import { attributes, el, number } from "../shared/dom.js";
import { followTheme } from "../shared/theme.js";

const of = (name, more) => ({ ...START, ...PRESETS[name], ...more });
const on = (word) => WORDS.indexOf(word);
const view = (state, more = {}) => ruled({ ...state, ...more });
const ASSUMED_RATE = 0.7;

/** question, said before it, the case it starts from, the control, what is shown, and the answer's paragraphs. */
const CARDS = [
  {
    question: "Why draft several tokens before asking the verifier?",
    said: [
      "In a round the drafter writes up to K proposals one after the other. The verifier scores all of their places in one forward pass, and they are examined in order up to the first rejection: that one is replaced by a token of the verifier’s choice, and what comes after it is thrown away. (The last proposal waits until all before it are accepted: its place is scored without it.)",
      "Suppose that each proposal is accepted with probability 0.70. Move K: how many tokens does one verifier call yield?",
    ],
    fragment: roundFragment,
    answer: () => [
      "Proposal k counts only if all before it were accepted, which happens with probability 0.70^(k − 1). The sum over K proposals is (1 − 0.70^K) / (1 − 0.70): at K = 5 that is " +
        number(blockEfficiency(ASSUMED_RATE, 5)) + ", and no K brings it past 1 / (1 − 0.70) = " + number(1 / (1 - ASSUMED_RATE)) + ".",
      "Verifying a few tokens costs about as much as verifying one, because a forward pass over one token spends most of its time fetching the model’s weights from memory, and a few more tokens use the same weights while they are there. The drafter’s own passes are not free, so drafting far ahead does not pay.",
      "K changes the speed and never the text: each position has coins of its own, however the positions are cut into rounds. So SpecViz can choose K anew for each round, and does unless you fix it.",
    ],
  },
  {
    question: "At α = 0, what does speculative decoding change in the text?",
    said: [
      "It accepts a proposal v with probability min(1, p(v) / ((1 − α)·q(v))), and replaces a rejected one by a draw from the residual: what p has beyond q. Move α and compare π with p.",
    ],
    start: of("confident and wrong", { method: "speed", lenience: 0.5 }),
    control: "lenience",
    answer: (state) => {
      const lossless = view(state, { lenience: 0 });
      const lossy = view(state, { lenience: 0.5 });
      return [
        "Nothing. A word that the drafter likes too much is accepted just often enough, and the rejections go to the words it likes too little: π = p exactly, TV(π, p) = 0.",
        "What a poor drafter costs is speed. At α = 0 the acceptance rate is 1 − TV(q, p) = " + number(lossless.acceptanceRate) +
          ". At α = 0.5 it is " + number(lossy.acceptanceRate) + ", but the text has left the verifier: TV(π, p) = " +
          number(totalVariation(lossy.target, lossy.p)) + ".",
      ];
    },
  },
  {
    question: "At which lenience does Chow stop asking?",
    said: ["A cascade asks at each place whether the drafter will do. Chow trusts the drafter where max q₁ ≥ 1 − α, and otherwise emits what the verifier would. Move α and watch for the moment when it flips."],
    start: of("confident and wrong", { method: "cascade_chow", lenience: 0 }),
    control: "lenience",
    answer: (state) => {
      const { q1, acceptanceRate } = view(state);
      const top = largest(q1);
      return [
        "At α = 1 − max q₁ = 1 − " + number(top) + " = " + number(1 - top) + ". From there on π = q and every proposal is accepted; below it π = p and the acceptance rate is " + number(acceptanceRate) + ".",
        "Chow looks only at how sure the drafter is. Here the drafter is sure of " + WORDS[q1.indexOf(top)] + ", the verifier of " +
          WORDS[on("Canberra")] + ", and Chow never finds out: a confident mistake passes.",
      ];
    },
  },
  {
    question: "Both are unsure: is it worth asking the verifier?",
    said: ["Now both distributions are flat. Chow and Diff have the same lenience, α = 0.10. Switch between them."],
    start: of("both unsure", { method: "cascade_chow", lenience: 0.1 }),
    control: "method",
    keepLenience: true,
    offered: ["cascade_chow", "cascade_diff"],
    answer: (state) => {
      const chow = view(state);
      const diff = view(state, { method: "cascade_diff" });
      const sure = view(of("verifier sure"), { method: "cascade_diff", lenience: 0.1 });
      return [
        "Chow says yes, Diff says no. The drafter’s best word has max q₁ = " + number(chow.score) + ", far below Chow’s 1 − α = " + number(chow.threshold) +
          ". Diff asks whether the verifier would be any surer: max p₁ − α = " + number(largest(diff.p1)) + " − 0.10 = " + number(diff.threshold) +
          ", which the drafter reaches. Where neither model knows, the verifier’s guess is hardly worth a rejection.",
        "Against a verifier with max p₁ = " + number(largest(sure.p1)) + ", Diff would want max q₁ ≥ " + number(sure.threshold) + ", and ask.",
      ];
    },
  },
  {
    question: "Why does OPT accept a confident wrong draft?",
    said: ["The drafter is sure of Sydney, the verifier of Canberra. OPT trusts the drafter where max q₁ ≥ max p₁ − α·TV(q, p). Raise α from 0, a little at a time."],
    start: of("confident and wrong", { method: "cascade_opt", lenience: 0 }),
    control: "lenience",
    answer: (state) => {
      const tips = ({ q, p, q1, p1 }) => [largest(p1) - largest(q1), totalVariation(q, p)];
      const [gap, distance] = tips(view(state));
      const [smallGap, smallDistance] = tips(view(of("they agree")));
      return [
        "Because the two disagree so much. If the verifier had its way, a share TV(q, p) = " + number(distance) + " of the proposals would be rejected. OPT weighs that cost, times α, against the confidence that is lost, max p₁ − max q₁ = " +
          number(gap) + ". It tips at α = " + number(gap) + " / " + number(distance) + " = " + number(gap / distance) + ".",
        "Where the two nearly agree, as in “they agree” in the Playground, accepting saves next to nothing: the gap is only " + number(smallGap) +
          ", yet it takes α = " + number(smallGap) + " / " + number(smallDistance) + " = " + number(smallGap / smallDistance) + ".",
        "The test compares how sure the two are, never of what. That is its price.",
      ];
    },
  },
  {
    question: "Can a rule keep one word and refuse another in the same place?",
    said: ["Token rules judge words one at a time. V1 trusts a word if the drafter likes it enough, V3 if the verifier does. Switch between them, both at α = 0.40."],
    start: of("confident and wrong", { method: "cascade_tokenV1", lenience: 0.4 }),
    control: "method",
    keepLenience: true,
    offered: ["cascade_tokenV1", "cascade_tokenV3"],
    answer: (state) => {
      const first = view(state);
      const third = view(state, { method: "cascade_tokenV3" });
      const wrong = on("Sydney");
      return [
        "Yes. V1 asks for q₁(v) ≥ " + number(first.threshold) + " and trusts " + named(first.trusted) + ": the drafter’s word is enough, right or wrong. V3 asks for p₁(v) ≥ " +
          number(third.threshold) + " and trusts " + named(third.trusted) + ".",
        "A trusted word is always accepted. The drafter’s mass on all other words is spread as p says, so π(Sydney) is " + number(first.target[wrong]) + " under V1 and " +
          number(third.target[wrong]) + " under V3. The acceptance rates, " + number(first.acceptanceRate) + " and " + number(third.acceptanceRate) + ", are the price.",
      ];
    },
  },
  {
    question: "Is Token V3 at its strictest the verifier, exactly?",
    said: ["Its strict end is α = 0: trust only words with p₁(v) ≥ max p₁. Move α there and look at TV(π, p)."],
    start: of("confident and wrong", { method: "cascade_tokenV3", lenience: 0.9 }),
    control: "lenience",
    answer: (state) => {
      const end = view(state, { lenience: 0 });
      const best = end.p.indexOf(largest(end.p));
      return [
        "No. One word always passes: the verifier’s own favourite, here " + WORDS[best] + ". All the drafter’s mass on it is kept, and its share of the rest comes on top, so it is emitted a little too often: TV(π, p) = q(a)·(1 − p(a)) = " +
          number(end.q[best]) + " × (1 − " + number(end.p[best]) + ") = " + number(totalVariation(end.target, end.p)) + ".",
        "The other strict ends: speculative decoding at 0 is exactly lossless, and so are Diff, Token V1 and Token V2 at −1, where they never trust. Chow at 0 still trusts a drafter with max q₁ = 1. OPT’s α has no bounds, but at temperature 1 all that can happen happens between −1 and 1: max p₁ and max q₁ are never further apart than TV(q, p).",
        "At the other end, α = 1, Chow, Diff and the three token rules trust everything: π = q.",
      ];
    },
  },
  {
    question: "At temperature 0, what is left for α to do?",
    said: ["This is speculative decoding at temperature 0, where each model has one word only. Move α."],
    start: of("confident and wrong", { method: "speed", lenience: 0, temperature: 0 }),
    control: "lenience",
    answer: (state) => {
      const { q, p, q1 } = view(state);
      const [drafted, wanted] = [q, p].map((one) => WORDS[one.indexOf(1)]);
      return [
        "For speculative decoding, nothing. The drafter always proposes " + drafted + ", to which the verifier gives 0, and 0 divided by anything is 0. Where the two have the same favourite the proposal always passes. So it is accepted exactly where the favourites agree, whatever α is, and the text is the verifier’s greedy text: " + wanted + ".",
        "The cascades keep their α: their tests look at q₁ and p₁, at temperature 1. Chow would trust the drafter from α = " + number(1 - largest(q1)) + " on, and write " + drafted + ".",
      ];
    },
  },
  {
    question: "Same seed, another method: what can make the texts differ?",
    said: ["Each position has three coins: one to draft with, one to accept with, one to resample with. The 1,000 tokens below are thrown with the same coins for every method. Choose a method and see how many tokens change."],
    start: of("confident and wrong", { method: "cascade_opt", lenience: 0.3 }),
    control: "method",
    shows: ["figures", "rule", "changed", "throws"],
    answer: (state) => {
      const reference = view(state, { method: "speed", lenience: 0 });
      const swapped = changedTokens(view(state, { method: "cascade_opt", lenience: 0.3 }), reference, state.seed);
      const strict = changedTokens(view(state, { method: "cascade_tokenV3", lenience: 0 }), reference, state.seed);
      return [
        "Only the rule. The coins belong to the seed and the position, not to the method, so a token changes only where a decision does: " + swapped +
          " of the 1,000 under OPT at α = 0.3, which here trusts the drafter, and " + strict + " under Token V3 at α = 0, which hardly ever does.",
        "In a real text the same holds up to the first place where two methods part: the rule parted them. From there on they continue different texts.",
      ];
    },
  },
];

/** Card one: how many tokens a round yields, by draft length. */
function roundFragment() {
  const yields = el("dd", "");
  const rows = attributes(el("ol", "st-reach"), { "aria-label": "Probability that each proposal counts" });
  const show = (length) => {
    yields.textContent = number(blockEfficiency(ASSUMED_RATE, length));
    rows.replaceChildren(...Array.from({ length }, (_, before) => {
      const bar = el("span", "sp-cell-bar");
      bar.style.setProperty("--share", ASSUMED_RATE ** before);
      return el("li", "", bar, el("span", "", "proposal " + (before + 1)), el("span", "", number(ASSUMED_RATE ** before)));
    }));
  };
  const control = rangeControl("Draft length K", "draft_length", show);
  control.set({ min: 1, max: 16, step: 1, value: 3, ends: ["1", "16"] });
  show(3);
  return el("div", "", attributes(el("dl", "sp-figures", el("div", "", el("dt", "", "tokens for each verifier call"), yields)), { "data-testid": "figures" }),
    control.node, rows);
}

function cardNodes(card, methods) {
  const stage = attributes(el("div", "st-stage"), { "data-testid": "stage" });
  if (card.fragment) stage.append(card.fragment());
  else createPlayground(stage, { shows: ["figures", "rule", "table"], ...card, methods, controls: [card.control] });
  const answer = attributes(el("details", "st-answer", el("summary", "", "Show the answer"), ...card.answer(card.start).map((words) => el("p", "", words))),
    { "data-testid": "answer" });
  return [...card.said.map((words) => el("p", "st-said", words)), stage, answer];
}

function createTour(host, { methods }) {
  setRows(methods);
  let at = 0;
  const title = attributes(el("h2", "st-question"), { tabindex: -1 });
  const progress = attributes(el("p", "st-progress"), { "data-testid": "progress" });
  const body = el("div", "st-body");
  const button = (words, step) => {
    const node = attributes(el("button", "sp-button st-step", words), { type: "button" });
    node.addEventListener("click", () => go(at + step));
    return node;
  };
  const back = button("← Previous", -1);
  const next = button("Next →", 1);
  const steps = attributes(el("nav", "st-steps", back, progress, next), { "aria-label": "Cards of the tour" });

  function go(to) {
    if (!CARDS[to]) return;
    at = to;
    draw();
    title.focus({ preventScroll: true });
    host.scrollIntoView({ block: "nearest" });
  }

  function draw() {
    title.textContent = CARDS[at].question;
    progress.textContent = at + 1 + " of " + CARDS.length;
    body.replaceChildren(...cardNodes(CARDS[at], methods));
    back.disabled = at === 0;
    next.disabled = at === CARDS.length - 1;
  }

  steps.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "ArrowRight") go(at + 1);
    else if (event.key === "ArrowLeft") go(at - 1);
  });
  host.append(attributes(el("article", "st-card", title, body), { "data-testid": "card" }), steps);
  draw();
}

/** Mount the component in gradio’s element. */
export function mount(element, { props }) {
  const host = element.querySelector(".specviz");
  followTheme(host);
  createTour(host, { methods: props.methods });
}
