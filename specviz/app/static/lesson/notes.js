/**
 * The speaker's notes: a second window, which this page writes without the server. Keys pressed in it control the lesson.
 *
 * createNotes({onKey}) -> {open() -> whether it is there, show(what), end()}
 */

import { attributes, el } from "../shared/dom.js";

const STYLE = `
  :root { color-scheme: light dark; }
  body { max-width: 44rem; margin: 2rem auto; padding: 0 1.5rem; font: 1.25rem/1.5 "SpecViz Serif", Charter, Georgia, serif; }
  h1 { margin: 0.2em 0 0.8em; font-size: 1.6rem; line-height: 1.25; }
  .notes { white-space: pre-line; }
  .where, .next { font: 0.95rem/1.4 system-ui, sans-serif; opacity: 0.75; }
  .answer { margin-top: 1.5em; padding-top: 1em; border-top: 1px solid; font-size: 1rem; opacity: 0.85; }
  .next { margin-top: 2em; }
`;
const MINUTE = 60_000;

export function createNotes({ onKey }) {
  let page = null;
  let begun = 0;
  let told = null;
  let clock = 0;

  const isThere = () => page !== null && !page.closed;

  function open() {
    if (isThere()) {
      page.focus();
      return true;
    }
    page = window.open("", "specviz-notes", "popup,width=720,height=640");
    if (!page) return false;
    begun ||= performance.now();
    const own = page.document;
    own.title = "SpecViz";
    const style = own.createElement("style");
    style.textContent = STYLE;
    own.head.replaceChildren(style);
    own.addEventListener("keydown", onKey);
    clearInterval(clock);
    clock = setInterval(draw, MINUTE);
    draw();
    return true;
  }

  function draw() {
    if (!isThere() || !told) return;
    const { language, where, plan, title, notes, answer, next } = told;
    const minutes = language.say("notes_time", { minutes: String(Math.floor((performance.now() - begun) / MINUTE)) });
    page.document.documentElement.lang = language.code;
    page.document.body.replaceChildren(
      el("p", "where", [where, plan, minutes].filter(Boolean).join(" · ")),
      el("h1", "", title),
      attributes(el("p", "notes", notes || language.say("notes_none")), { "data-testid": "notes" }),
      answer ? el("p", "answer", answer) : "",
      next ? el("p", "next", language.say("notes_next", { title: next })) : "",
    );
  }

  function show(what) {
    told = what;
    draw();
  }

  function close() {
    clearInterval(clock);
    if (isThere()) page.close();
    page = null;
  }

  /** The lesson is over. */
  function end() {
    close();
    removeEventListener("pagehide", close);
  }

  addEventListener("pagehide", close);
  return { open, show, end };
}
