/**
 * The opening race: two recorded runs of one text on one clock. It starts by itself and needs no model. Has the clock, the figures
 * and the buttons; `schedule.js` says when things happen, `scene.js` draws the lanes, `words.js` has the sentences.
 *
 * createRace(root, {leave}) -> {update(value)}
 *   root    the element holding race.html
 *   leave   called with the query of another view of the page, and a field to select there
 *   update  takes JSON: {alone, drafted, machine, method, prompts, repetitions, why, cascade}. The first two are traces, each as one
 *           object; `why` is the query of the drafted run, `cascade` {tokens, calls, lossless, query} or null. "" means that no
 *           race was recorded.
 */

import { go } from "../page/address.js";
import { attributes, el, list, opensElsewhere, spoken, string } from "../shared/dom.js";
import { followTheme } from "../shared/theme.js";
import { chip } from "./chips.js";
import { ribbons, ticks } from "./ribbons.js";
import { createLane } from "./scene.js";
import { momentAt, planRace } from "./schedule.js";
import { cascadeWords, claim, conditions, isFaster, seconds, sizeWords, slower } from "./words.js";

const SHORTEST_FRAME = 0.024; // seconds: every other frame of a common screen is enough, beside models on the same processor
const LONGEST_FRAME = 0.25; // seconds: what a tab missed while it was held up is not made up for
const reduced = matchMedia("(prefers-reduced-motion: reduce)");

function read(value) {
  try {
    const race = Object(JSON.parse(value));
    return race.alone && race.drafted ? race : null;
  } catch {
    return null;
  }
}

function createRace(root, { leave = () => {} } = {}) {
  const host = root.querySelector(".sr-race");
  const find = (selector) => host.querySelector(selector);
  const [again, why, now, rate, announced] = [".sr-again", ".first", ".sr-now", ".sr-rate", ".sr-announced"].map(find);
  let plan = null,
    lanes = [],
    whyOf = "", // the query of the drafted run
    axis = null,
    shown = 0, // seconds of the show
    running = false, // whether it shall go on
    frame = 0, // the coming frame's, 0 without
    before = 0,
    inSight = false,
    told = null;

  function update(value) {
    const race = read(value);
    halt();
    find(".sr-show").hidden = !race;
    if (!race) return;
    plan = planRace(race);
    const still = () => reduced.matches;
    const last = plan.drafted.tokens.findLastIndex((token) => !token.kept) + 1; // of the verifier's own tokens
    lanes = [
      { key: "alone", lane: plan.alone, root: find(".alone"), flat: true },
      { key: "drafted", lane: plan.drafted, root: find(".drafted"), flat: false },
    ].map((each) => ({ ...each, scene: createLane(each.root, each.lane, { last, flat: each.flat, still }), last: {} }));
    axis = ribbons(find(".sr-ribbons"), plan);
    ticks(find(".sr-ticks"), plan.end);
    say(race);
    told = null;
    lay();
    if (reduced.matches) seek(plan.length);
    else play();
  }

  /** Everything that stands from the first. */
  function say(race) {
    if (!isFaster(plan)) find(".sr-headline").textContent = "A large language model is asked less often when a small one guesses ahead.";
    find(".asked").replaceChildren("Both answer: ", el("q", "", race.drafted.prompt));
    find(".told").replaceChildren(...claim(plan).map(([text, strong]) => el(strong ? "b" : "span", "", text)));
    whyOf = string(race.why);
    tellCascade(race.cascade);
    find(".sr-sizes").textContent = sizeWords(list(race.sizes));
    find(".sr-conditions").textContent = conditions(plan, race);
    for (const { root: own, lane } of lanes) {
      own.querySelector(".sr-time").replaceChildren(el("b", "", seconds(lane.end)), " for " + lane.tokens.length + " tokens");
    }
    tellWork();
    why.hidden = plan.asked < 0;
    if (plan.asked >= 0) why.replaceChildren("Why was ", chip(plan.drafted.tokens[plan.asked].rejected, "rejected"), " rejected?");
  }

  const ask = (index) => leave(whyOf + "&token=" + index);

  function tellCascade(cascade) {
    const line = find(".sr-cascade");
    line.hidden = !cascade;
    if (!cascade) return;
    const link = attributes(el("a", "", "See which"), { href: string(cascade.query) });
    link.addEventListener("click", (event) => {
      if (opensElsewhere(event)) return;
      event.preventDefault();
      leave(string(cascade.query));
    });
    line.replaceChildren(...cascadeWords(cascade).map(([text, strong]) => el(strong ? "b" : "span", "", text)), link);
  }

  /** What stands in place of the work once it is done: how many tokens came about how, and every rejected one. */
  function tellWork() {
    const { alone, drafted } = plan;
    const row = (count, token, words, ...more) => el("li", "", el("b", "", String(count)), token, el("span", "", words, ...more));
    const own = drafted.tokens.filter((token) => !token.kept);
    const kept = drafted.tokens.filter((token) => token.kept);
    const rejected = drafted.tokens.flatMap((token, index) => (token.rejected === null ? [] : [{ ...token, index }]));
    const word = (tokens) => tokens.find((token) => /\p{L}{2}/u.test(token.label)) ?? tokens[0] ?? { label: "…" };
    const asks = rejected.map((token) => {
      const button = el("button", "sr-ask", chip(token.rejected, "rejected"));
      button.type = "button";
      button.setAttribute("aria-label", "Why was " + spoken({ label: token.rejected }) + " rejected?");
      button.addEventListener("click", () => ask(token.index));
      return button;
    });
    find(".alone .sr-told").replaceChildren(
      el("ul", "", row(alone.tokens.length, chip(word(alone.tokens).label, "own plain"), "the verifier’s own, one call each")),
    );
    find(".drafted .sr-told").replaceChildren(
      el(
        "ul",
        "",
        row(kept.length, chip(word(kept).label, "kept"), "drafted and kept"),
        row(own.length, chip(word(own).label, "own"), "the verifier’s own"),
        rejected.length > 0 && el("li", "sr-rejected", el("b", "", String(rejected.length)), el("span", "sr-asks", ...asks), el("span", "", "rejected, not in the text")),
      ),
    );
  }

  // ---- the clock

  function seek(to) {
    shown = Math.min(Math.max(0, to), plan.length);
    draw();
  }

  function play() {
    if (shown >= plan.length) shown = 0;
    running = true;
    announced.textContent = "";
    draw();
    go();
  }

  function pause() {
    running = false;
    halt();
    draw();
  }

  function go() {
    if (!running || frame || !inSight || document.hidden) return;
    before = performance.now();
    frame = requestAnimationFrame(step);
  }

  function halt() {
    cancelAnimationFrame(frame);
    frame = 0;
  }

  function step(time) {
    if (time - before < SHORTEST_FRAME * 1000) {
      frame = requestAnimationFrame(step);
      return;
    }
    shown = Math.min(plan.length, shown + Math.min(LONGEST_FRAME, Math.max(0, (time - before) / 1000)));
    before = time;
    frame = 0;
    if (!host.isConnected) return;
    if (shown >= plan.length) running = false;
    draw();
    if (running) frame = requestAnimationFrame(step);
    else announced.textContent = find(".told").textContent + ".";
  }

  // ---- a frame

  function draw() {
    const moment = momentAt(plan, shown);
    for (const each of lanes) {
      each.scene.draw(shown);
      drawFigures(each, moment[each.key]);
    }
    axis.draw(moment);
    write(now, moment.over ? overWords() : seconds(moment.recorded));
    write(rate, running ? slower(moment.rate) : "");
    const [icon, word] = running ? ["❚❚", "Pause"] : moment.over ? ["↻", "Play again"] : ["▶", "Play"];
    write(again.firstElementChild, icon);
    write(again.lastElementChild, word);
    if (told !== moment.over) host.classList.toggle("over", (told = moment.over));
  }

  function overWords() {
    const [alone, drafted] = [plan.alone.end, plan.drafted.end].map((end) => Number.parseFloat(seconds(end))); // as they are shown
    return seconds(Math.abs(alone - drafted)) + (alone < drafted ? " later" : " sooner");
  }

  function drawFigures({ root: own, last, lane }, { calls, done, written }) {
    if (last.calls !== calls) own.querySelector(".sr-count b").textContent = String((last.calls = calls));
    const ended = done && written === lane.tokens.length;
    if (last.ended === ended) return;
    last.ended = ended;
    own.classList.toggle("ended", ended);
    own.querySelector(".sr-told").hidden = !ended;
    own.querySelector(".sr-say").hidden = own.querySelector(".sr-tray").hidden = ended;
  }

  function write(node, text) {
    if (node.textContent !== text) node.textContent = text;
  }

  function lay() {
    for (const { scene } of lanes) scene.measure();
    if (plan) draw();
  }

  again.addEventListener("click", () => (running ? pause() : play()));
  why.addEventListener("click", () => ask(plan.asked));
  find("[data-testid=own]").addEventListener("click", () => leave("?tab=generate", "#prompt textarea"));
  document.addEventListener("visibilitychange", () => (document.hidden ? halt() : go()));
  new IntersectionObserver((entries) => {
    inSight = entries[entries.length - 1].isIntersecting;
    if (inSight) go();
    else halt();
  }).observe(find(".sr-show"));
  new ResizeObserver(() => plan && find(".sr-card").clientWidth && lay()).observe(find(".sr-show"));
  document.fonts.ready.then(() => plan && lay());
  attributes(host, { "data-theme": "light" });
  followTheme(host);
  return { update };
}

export function mount(element, { props, watch }) {
  const race = createRace(element, { leave: go });
  race.update(props.value);
  watch("value", () => race.update(props.value));
}
