/**
 * A lesson on the whole screen: one step at a time, a guess before each answer, keys, progress, and the score at the end. Knows
 * the steps and their order; `pictures/` draws a step's picture, `language.js` writes its words.
 *
 * createPlayer(lesson, {methods, language, at, memory, onMove, onLeave, onClose}) -> {name, node, open(), close(), go(place, language)}
 *   lesson    {name, languages, steps}, as the server sends it
 *   at        a place such as "4", "3.1" (the first deeper step below the third) or "end"
 *   memory    {guesses, revealed}, by index of the step: this reader's guesses, and whether the answer is shown
 *   onMove    called with (place, language code) whenever either changes
 *   onLeave   called with the query of another view of the page that the reader chose
 *   onClose   called when the reader closes the lesson
 */

import { attributes, el, opensElsewhere } from "../shared/dom.js";
import { computedOf } from "./figures.js";
import { createLanguage } from "./language.js";
import { openHandout } from "./handout.js";
import { createNotes } from "./notes.js";
import { pictureOf } from "./pictures/index.js";

const SIZES = [1, 0.93, 0.86, 0.8, 0.74]; // of a step's words, beside the usual
const OWN_KEYS = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End", "PageUp", "PageDown"];

/** Places in the order of the steps: "1", "2", "2.1", …, and "end". */
function placesOf(steps) {
  let main = 0, below = 0;
  return [...steps.map(({ deeper }) => {
    if (!deeper) [main, below] = [main + 1, -1];
    below += 1;
    return deeper ? main + "." + below : String(main);
  }), "end"];
}

export function createPlayer(lesson, { methods, language: asked, at: wanted, memory: { guesses, revealed }, onMove = () => {}, onLeave = () => {}, onClose = () => {} }) {
  const places = placesOf(lesson.steps);
  const mainPlaces = places.filter((place) => !place.includes("."));
  const computed = lesson.steps.map(computedOf);
  let at = Math.max(0, places.indexOf(wanted));
  let picture = null;
  let words = createLanguage(asked, lesson.languages[asked].words);

  // ---- what stays

  const button = (className, onClick) => {
    const node = attributes(el("button", className), { type: "button" });
    node.addEventListener("click", onClick);
    return node;
  };
  const lessonTitle = el("p", "sl-lesson-title");
  const where = attributes(el("p", "sl-where"), { "data-testid": "where" });
  const languages = attributes(el("div", "sl-languages"), { role: "group" });
  const notes = createNotes({ onKey: (event) => handle(event) });
  const notesButton = button("sl-tool", () => openNotes());
  const themeButton = button("sl-tool", () => document.getElementById("theme-switch")?.click());
  const handoutButton = button("sl-tool", () => openHandout(lesson, { language: words, methods, fill, titleOf, places }));
  const fullButton = button("sl-tool", () => full());
  const closeButton = button("sl-tool sl-close", () => close());
  const message = attributes(el("p", "sl-message"), { role: "status" });
  const stage = el("div", "sl-stage");
  const back = button("sl-step back", () => move(-1));
  const next = button("sl-step next", () => forward());
  const dots = el("ol", "sl-dots");
  const hints = el("p", "sl-hints");
  const nav = el("nav", "sl-nav", dots, hints);
  const node = attributes(el("dialog", "sl-player",
    el("header", "sl-head", lessonTitle, where, el("div", "sl-tools", languages, notesButton, handoutButton, themeButton, fullButton, closeButton)),
    message, stage, el("footer", "sl-foot", back, nav, next)), { "data-testid": "player" });

  for (const code of Object.keys(lesson.languages)) {
    const choose = button("sl-tool", () => speak(code));
    choose.textContent = lesson.languages[code].words.language;
    attributes(choose, { lang: code, "data-language": code });
    languages.append(choose);
  }

  // ---- the words of a step

  const step = () => lesson.steps[at];
  const textsOf = (one) => one.texts[words.code];
  const fill = (template, index = at) => words.fill(template ?? "", { ...lesson.steps[index]?.values, ...computed[index] });
  const titleOf = (place) => (place === "end" ? words.say("end") : textOf(textsOf(lesson.steps[places.indexOf(place)]).title, places.indexOf(place)));
  const textOf = (template, index = at) => el("p", "", ...fill(template, index)).textContent;
  const choicesOf = (index) => (lesson.steps[index] ? textsOf(lesson.steps[index]).choices : []);
  const asks = (index) => choicesOf(index).length > 0;
  const isOpen = (index = at) => !asks(index) || revealed.has(index);

  function speak(code) {
    if (!lesson.languages[code]) return;
    words = createLanguage(code, lesson.languages[code].words);
    draw({ focus: false });
  }

  // ---- moving

  function go(place, code = words.code) {
    const index = places.indexOf(place);
    if (index < 0) return;
    at = index;
    if (lesson.languages[code]) words = createLanguage(code, lesson.languages[code].words);
    message.textContent = "";
    draw({ focus: true });
  }

  const isDeeper = (index) => places[index]?.includes(".");
  /** The next step for who goes straight on: from below, first what else is there. */
  const following = (index) => (isDeeper(index) && isDeeper(index + 1) ? index + 1 : places.findIndex((_, other) => other > index && !isDeeper(other)));

  function move(by) {
    if (by > 0) {
      const to = following(at);
      if (to >= 0) go(places[to]);
      return;
    }
    const before = places.slice(0, at).findLastIndex((_, index) => !isDeeper(index) || isDeeper(at));
    if (before >= 0) go(places[before]);
  }

  const forward = () => (places[at] === "end" ? close() : isOpen() ? move(1) : reveal());
  const deeper = () => isDeeper(at + 1) && go(places[at + 1]);
  const up = () => isDeeper(at) && go(places[at].split(".")[0]);

  function reveal(choice = null) {
    if (isOpen()) return;
    if (choice !== null) guesses.set(at, choice);
    revealed.add(at);
    draw({ focus: true, reveals: true });
  }

  function handle(event) {
    if (event.altKey || event.ctrlKey || event.metaKey || event.defaultPrevented) return;
    const target = event.target;
    const isRange = target?.matches?.("input[type=range]");
    if (isRange && OWN_KEYS.includes(event.key)) return;
    const presses = target?.closest?.("button, a, summary") && (event.key === "Enter" || event.key === " ");
    if (presses) return;
    const choice = /^[1-9]$/u.test(event.key) && !isOpen() && Number(event.key) <= choicesOf(at).length ? Number(event.key) - 1 : undefined;
    const acts = { ArrowRight: forward, PageDown: forward, Enter: forward, " ": forward, ArrowLeft: () => move(-1), PageUp: () => move(-1),
      ArrowDown: deeper, ArrowUp: up, Home: () => go(places[0]), End: () => go("end"), n: openNotes, f: full };
    if (choice !== undefined) reveal(choice);
    else if (Object.hasOwn(acts, event.key)) acts[event.key]();
    else return;
    event.preventDefault();
  }

  // ---- drawing

  function draw({ focus = true, reveals = false } = {}) {
    attributes(node, { lang: words.code });
    const texts = lesson.languages[words.code];
    lessonTitle.textContent = texts.title;
    const names = [[notesButton, "notes"], [handoutButton, "handout"], [fullButton, "full"], [closeButton, "close"], [back, "back"],
      [next, places[at] === "end" ? "close" : isOpen() ? "next" : "show"]];
    for (const [each, name] of names) each.textContent = words.say(name);
    themeButton.textContent = words.say(document.body.classList.contains("dark") ? "light" : "dark");
    attributes(languages, { "aria-label": words.say("switch") });
    attributes(nav, { "aria-label": words.say("progress") });
    attributes(node, { "aria-label": texts.title });
    for (const each of languages.children) each.setAttribute("aria-pressed", String(each.dataset.language === words.code));
    const place = places[at];
    const main = mainPlaces.length - 1;
    where.textContent = place === "end" ? words.say("end")
      : words.say(isDeeper(at) ? "deeper_step" : "step", { step: place.split(".")[0], steps: String(main) });
    back.disabled = at === 0;
    const { body, title } = place === "end" ? endNodes() : stepNodes(reveals);
    stage.replaceChildren(...body);
    stage.dataset.place = place;
    stage.dataset.kind = step()?.kind ?? "end";
    fit();
    drawDots();
    drawHints();
    if (focus) title.focus({ preventScroll: true });
    node.scrollTop = 0;
    stage.scrollTop = 0;
    // What can be scrolled must be reached by keys too.
    if (stage.scrollHeight > stage.clientHeight + 1) stage.tabIndex = 0;
    else stage.removeAttribute("tabindex");
    tellNotes();
    onMove(place, words.code);
  }

  /** The largest type in which the step's words fit on the stage; a phone scrolls. */
  function fit() {
    const said = stage.querySelector(".sl-words");
    for (const size of SIZES) {
      said.style.setProperty("--sl-said", size + "em");
      if (said.getBoundingClientRect().bottom <= stage.getBoundingClientRect().bottom) return;
    }
  }

  function stepNodes(reveals) {
    const one = step();
    const texts = textsOf(one);
    const title = attributes(el("h2", "sl-title", ...fill(texts.title)), { tabindex: -1, "data-testid": "title" });
    const open = isOpen();
    const live = { query: one.live, link: null };
    const onTry = (query) => {
      live.query = query;
      live.link?.setAttribute("href", query);
    };
    picture = pictureOf(one, { language: words, methods, onTry });
    const said = el("div", "sl-words", title, el("p", "sl-said", ...fill(texts.before)));
    if (!open) said.append(questionNodes(texts));
    else if (asks(at)) said.append(...answerNodes(one, texts));
    const ways = el("p", "sl-ways");
    if (isDeeper(at + 1)) {
      const down = button("sl-way", deeper);
      down.append(words.say("deeper") + ": " + titleOf(places[at + 1]), attributes(el("kbd", "", "↓"), { "aria-hidden": "true" }));
      ways.append(down);
    }
    if (one.live && open) ways.append((live.link = wayTo(live.query, words.say("try"))));
    said.append(ways);
    const shown = el("div", "sl-picture", picture.node);
    if (open) picture.reveal?.(reveals);
    return { body: picture.node ? [said, shown] : [said], title };
  }

  function questionNodes(texts) {
    const choices = texts.choices.map((text, index) => {
      const choose = button("sl-choice", () => reveal(index));
      choose.append(attributes(el("kbd", "", String(index + 1)), { "aria-hidden": "true" }), el("span", "", ...fill(text)));
      choose.dataset.choice = index;
      return choose;
    });
    const question = attributes(el("p", "sl-question", ...fill(texts.question)), { id: "sl-question" });
    return el("div", "sl-asked", question, attributes(el("div", "sl-choices", ...choices), { role: "group", "aria-labelledby": "sl-question" }));
  }

  /** A link to another place of the page; Back leads to this step again. */
  function wayTo(query, text) {
    const link = attributes(el("a", "sl-way", text, attributes(el("span", "", " ↗"), { "aria-hidden": "true" })), { href: query });
    link.addEventListener("click", (event) => {
      if (opensElsewhere(event)) return;
      event.preventDefault();
      onLeave(link.getAttribute("href"));
    });
    return link;
  }

  function answerNodes(one, texts) {
    const guess = guesses.get(at);
    const name = guess === undefined ? "no_guess" : guess === one.right ? "right" : "wrong";
    const [before, after] = lesson.languages[words.code].words[name].split("{answer}");
    const verdict = el("p", "sl-verdict is-" + name, el("b", "", before), ...fill(texts.choices[one.right]), after);
    attributes(verdict, { role: "status", "data-testid": "verdict", "data-right": one.right });
    return [el("p", "sl-question", ...fill(texts.question)), verdict,
      attributes(el("p", "sl-said sl-answer", ...fill(texts.answer)), { "data-testid": "answer" })];
  }

  function endNodes() {
    picture = null;
    const right = [...guesses].filter(([index, guess]) => lesson.steps[index].right === guess).length;
    const tally = guesses.size ? words.say("tally", { right: String(right), guessed: String(guesses.size) }) : words.say("tally_none");
    const title = attributes(el("h2", "sl-title", words.say("end")), { tabindex: -1, "data-testid": "title" });
    const again = button("sl-choice", () => {
      guesses.clear();
      revealed.clear();
      go(places[0]);
    });
    again.textContent = words.say("again");
    return { title, body: [el("div", "sl-words sl-end", title, el("p", "sl-said", lesson.languages[words.code].end),
      attributes(el("p", "sl-tally", tally), { "data-testid": "tally", "data-right": right, "data-guessed": guesses.size }),
      el("p", "sl-ways", ...["generate", "compare", "playground"].map((tab) => wayTo("?tab=" + tab, words.say("on_" + tab)))), again)] };
  }

  function drawDots() {
    dots.replaceChildren(...places.slice(0, -1).map((place, index) => {
      const link = attributes(el("a", "", el("span", "", place)), { href: hrefOf(place), "aria-label": place + ": " + titleOf(place) });
      link.title = place + ": " + titleOf(place);
      link.addEventListener("click", (event) => {
        if (opensElsewhere(event)) return;
        event.preventDefault();
        go(place);
      });
      if (index === at) link.setAttribute("aria-current", "step");
      const guess = guesses.get(index);
      const state = guess === undefined ? (revealed.has(index) ? "seen" : "") : guess === lesson.steps[index].right ? "right" : "wrong";
      const item = el("li", [isDeeper(index) ? "deeper" : "", state].join(" ").trim(), link);
      return item;
    }));
  }

  function drawHints() {
    const key = (name, word) => [el("kbd", "", name), " " + words.say(word)];
    const count = choicesOf(at).length;
    const told = [];
    if (!isOpen()) told.push(key(count > 1 ? "1–" + count : "1", "hint_guess"));
    told.push(key("→", places[at] === "end" ? "hint_close" : isOpen() ? "hint_next" : "hint_show"));
    if (at > 0) told.push(key("←", "hint_back"));
    if (isDeeper(at + 1)) told.push(key("↓", "hint_deeper"));
    if (isDeeper(at)) told.push(key("↑", "hint_up"));
    told.push(key("Esc", "hint_close"));
    hints.replaceChildren(...told.map((pair) => el("span", "", ...pair)));
  }

  const hrefOf = (place) => {
    const address = new URL(location.pathname, location.origin);
    for (const [name, value] of Object.entries({ lesson: lesson.name, step: place, language: words.code })) address.searchParams.set(name, value);
    return address.href;
  };

  // ---- the notes, the screen

  function openNotes() {
    message.textContent = notes.open() ? "" : words.say("notes_blocked");
    tellNotes();
  }

  function tellNotes() {
    const place = places[at];
    const to = following(at);
    const minutes = lesson.steps.map((one) => one.minutes);
    const [end, total] = [minutes.slice(0, at + 1), minutes].map((all) => all.reduce((sum, each) => sum + each, 0));
    const plan = step()?.minutes ? words.say("notes_plan", { step: String(step().minutes), end: String(end), total: String(total) }) : "";
    notes.show({ language: words, where: where.textContent, plan, title: titleOf(place),
      notes: place === "end" ? "" : textOf(textsOf(step()).notes), answer: asks(at) ? textOf(textsOf(step()).answer) : "",
      next: to >= 0 ? titleOf(places[to]) : "" });
  }

  function full() {
    if (document.fullscreenElement) document.exitFullscreen();
    else document.documentElement.requestFullscreen?.().catch(() => {});
  }

  function open() {
    if (!node.open) node.showModal();
    draw({ focus: true });
  }

  const close = () => node.close();

  node.addEventListener("keydown", handle);
  node.addEventListener("close", () => {
    notes.end();
    follower.disconnect();
    if (document.fullscreenElement) document.exitFullscreen();
    onClose();
  });
  const follower = new MutationObserver(() => (themeButton.textContent = words.say(document.body.classList.contains("dark") ? "light" : "dark")));
  follower.observe(document.body, { attributes: true, attributeFilter: ["class"] });
  return { name: lesson.name, node, open, close, go };
}
