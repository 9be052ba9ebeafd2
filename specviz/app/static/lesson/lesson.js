/**
 * The list of lessons, each with a button per language, and the lesson that the address names, opened over the whole
 * screen. A lesson's steps are fetched when it is opened. Handles the address; `player.js` draws the lesson.
 *
 * Props: {lessons, methods}; each lesson {name, problem} or {name, main, deeper, minutes, route, languages: {code: {title, about, words, route}}}.
 */

import { setRows } from "../playground/cases.js";
import { go, write } from "../page/address.js";
import { attributes, el, opensElsewhere } from "../shared/dom.js";
import { followTheme } from "../shared/theme.js";
import { createLanguage } from "./language.js";
import { createPlayer } from "./player.js";

const NAMES = ["lesson", "step", "language"];
const PLACE = "lessons"; // of the page

/** The lesson of the address, or null. */
function asked() {
  const query = new URLSearchParams(location.search);
  const [name, step, language] = NAMES.map((each) => query.get(each));
  return name ? { name, step: step ?? "1", language } : null;
}

const queryOf = ({ name, step, language }) => new URLSearchParams({ lesson: name, step, language });

/** The language to begin with: the one asked for, else the reader's own, else the first there is. */
function languageOf(codes, wanted) {
  const readers = [wanted, ...(navigator.languages ?? [])].filter(Boolean).map((code) => code.split("-")[0]);
  return [wanted, ...readers].find((code) => codes.includes(code)) ?? codes[0];
}

function createLessons(host, { lessons, methods, fetchLesson }) {
  let player = null;
  let turns = 0; // openings so far: what has been fetched for an earlier one is not shown
  const memories = new Map(); // by lesson: what was guessed and shown, for who comes back from elsewhere on the page

  async function open({ name, step, language }, isNew) {
    const known = lessons.find((each) => each.name === name);
    if (!known) return;
    leave();
    const turn = turns;
    if (known.problem) {
      say(known.problem);
      return;
    }
    const code = languageOf(Object.keys(known.languages), language);
    const words = createLanguage(code, known.languages[code].words);
    say(words.say("loading"), false);
    let lesson;
    try {
      lesson = await fetchLesson(name);
    } catch {
      lesson = { problem: words.say("missing") };
    }
    if (turn !== turns) return;
    say("");
    if (lesson.problem) {
      say(lesson.problem);
      return;
    }
    if (isNew ? !host.offsetParent : asked()?.name !== name) return; // another tab was chosen meanwhile
    if (isNew || !memories.has(name)) memories.set(name, { guesses: new Map(), revealed: new Set() });
    let before = isNew ? "" : null;
    player = createPlayer(lesson, {
      methods,
      language: code,
      at: step,
      memory: memories.get(name),
      onMove: (place, spoken) => {
        write(PLACE, "?" + queryOf({ name, step: place, language: spoken }), before !== null && before !== place);
        before = place;
      },
      onLeave: (query) => {
        leave();
        go(query);
      },
      onClose: () => {
        if (!player) return; // left already
        write(PLACE, "?tab=" + PLACE);
        leave();
      },
    });
    host.append(player.node);
    player.open();
  }

  function leave() {
    const old = player;
    player = null;
    turns += 1;
    say("");
    if (old?.node.open) old.close();
    old?.node.remove();
  }

  // ---- the list

  const message = attributes(el("p", "sl-note"), { role: "status", "data-testid": "lesson-message" });
  const say = (text, isProblem = true) => {
    message.textContent = text;
    message.classList.toggle("is-problem", Boolean(text) && isProblem);
  };

  function cardOf({ name, problem, languages, main, deeper, minutes, route }) {
    if (problem) {
      return attributes(el("article", "sl-card is-broken", el("h2", "", name), el("p", "sl-problem", problem)), { "data-lesson": name });
    }
    const codes = Object.keys(languages);
    const first = languageOf(codes, null);
    const words = createLanguage(first, languages[first].words);
    const card = el("article", "sl-card", el("h2", "", languages[first].title), el("p", "sl-about", languages[first].about),
      el("p", "sl-count", words.say("steps", { main: String(main), minutes: String(minutes), deeper: String(deeper) })));
    const starts = [first, ...codes.filter((code) => code !== first)].map((code) => {
      const start = attributes(el("button", "sl-start", languages[code].words.start), { type: "button", lang: code, "data-language": code });
      start.addEventListener("click", () => open({ name, step: "1", language: code }, true));
      return start;
    });
    const steps = languages[first].route.map((title, index) => {
      const asked = { name, step: String(index + 1), language: first };
      const link = attributes(el("a", "", title), { href: "?" + queryOf(asked) });
      link.addEventListener("click", (event) => {
        if (opensElsewhere(event)) return;
        event.preventDefault();
        open(asked, true);
      });
      return el("li", "", link, route[index] > 0 && el("small", "", " " + words.say("minutes", { minutes: String(route[index]) })));
    });
    card.append(el("p", "sl-starts", ...starts), el("ol", "sl-route", ...steps));
    return attributes(card, { "data-lesson": name, lang: first });
  }

  host.append(message, el("div", "sl-cards", ...lessons.map(cardOf)));
  function follow() {
    const wanted = asked();
    if (!wanted) leave();
    else if (player?.name === wanted.name) player.go(wanted.step, wanted.language);
    else open(wanted, false);
  }
  addEventListener("popstate", follow);
  follow();
  return { open };
}

/** Mount the component in gradio’s element. */
export function mount(element, { props }) {
  const host = element.querySelector(".specviz");
  followTheme(host);
  setRows(props.methods);
  const fetchLesson = async (name) => {
    const answer = await fetch(new URL("lessons?name=" + encodeURIComponent(name), document.baseURI));
    if (!answer.ok) throw new Error(String(answer.status));
    return answer.json();
  };
  createLessons(host, { lessons: props.lessons, methods: props.methods, fetchLesson });
}
