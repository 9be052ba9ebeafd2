/**
 * The lessons there are, each with a way to begin in every language, and the one that the address names, opened on the whole
 * screen. A lesson's steps are fetched when it is opened. Knows the address; what a lesson looks like is `player.js`.
 *
 * Props: {lessons, methods}; each lesson {name, problem} or {name, main, deeper, languages: {code: {title, about, words}}}.
 */

import { setRows } from "../playground/cases.js";
import { attributes, el } from "../shared/dom.js";
import { followTheme } from "../shared/theme.js";
import { createLanguage } from "./language.js";
import { createPlayer } from "./player.js";

const NAMES = ["lesson", "step", "language"];

/** The lesson of the address, or null. */
function asked() {
  const query = new URLSearchParams(location.search);
  const [name, step, language] = NAMES.map((each) => query.get(each));
  return name ? { name, step: step ?? "1", language } : null;
}

/** The language to begin with: the one asked for, else the reader's own, else the first there is. */
function languageOf(codes, wanted) {
  const readers = [wanted, ...(navigator.languages ?? [])].filter(Boolean).map((code) => code.split("-")[0]);
  return [wanted, ...readers].find((code) => codes.includes(code)) ?? codes[0];
}

function createLessons(host, { lessons, methods, fetchLesson }) {
  let player = null;

  function address(values) {
    const url = new URL(location.href);
    for (const name of NAMES) url.searchParams.delete(name);
    if (values) url.search = "";
    else url.searchParams.set("tab", "learn");
    for (const [name, value] of Object.entries(values ?? {})) url.searchParams.set(name, value);
    return url.href;
  }

  async function open({ name, step, language }, isNew) {
    const known = lessons.find((each) => each.name === name);
    if (!known) return;
    leave();
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
    if (lesson.problem) {
      say(lesson.problem);
      return;
    }
    say("");
    if (isNew) history.pushState(null, "", address({ lesson: name, step, language: code }));
    player = createPlayer(lesson, {
      methods,
      language: code,
      at: step,
      onMove: (place, spoken) => history.replaceState(null, "", address({ lesson: name, step: place, language: spoken })),
      onClose: () => {
        if (asked()) history.replaceState(null, "", address(null));
        leave();
      },
    });
    host.append(player.node);
    player.open();
  }

  function leave() {
    const old = player;
    player = null;
    if (old?.node.open) old.close();
    old?.node.remove();
  }

  // ---- the list

  const message = attributes(el("p", "sl-note"), { role: "status", "data-testid": "lesson-message" });
  const say = (text, isProblem = true) => {
    message.textContent = text;
    message.classList.toggle("is-problem", Boolean(text) && isProblem);
  };

  function cardOf({ name, problem, languages, main, deeper }) {
    if (problem) {
      return attributes(el("article", "sl-card is-broken", el("h2", "", name), el("p", "sl-problem", problem)), { "data-lesson": name });
    }
    const codes = Object.keys(languages);
    const first = languageOf(codes, null);
    const words = createLanguage(first, languages[first].words);
    const card = el("article", "sl-card", el("h2", "", languages[first].title), el("p", "sl-about", languages[first].about),
      el("p", "sl-count", words.say("steps", { main: String(main), deeper: String(deeper) })));
    const starts = [first, ...codes.filter((code) => code !== first)].map((code) => {
      const start = attributes(el("button", "sl-start", languages[code].words.start), { type: "button", lang: code, "data-language": code });
      start.addEventListener("click", () => open({ name, step: "1", language: code }, true));
      return start;
    });
    card.append(el("p", "sl-starts", ...starts));
    return attributes(card, { "data-lesson": name, lang: first });
  }

  host.append(message, el("div", "sl-cards", ...lessons.map(cardOf)));
  addEventListener("popstate", () => !asked() && leave());
  const wanted = asked();
  if (wanted) open(wanted, false);
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
