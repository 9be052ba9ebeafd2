/** A lesson to print: text, picture and answer of every step, in its own window. Made in the browser, without the server. */

import { attributes, el } from "../shared/dom.js";
import { pictureOf } from "./pictures/index.js";

const STYLES = ["../shared/shared", "../race/race", "../trace_view/inspector", "lesson"];

/** Open the window and print it; `fill`, `titleOf` and `places` are the player's. Nothing happens where windows are blocked. */
export function openHandout(lesson, { language, methods, fill, titleOf, places }) {
  const page = window.open("", "specviz-handout");
  if (!page) return;
  const own = page.document;
  const said = (className, text, index) => text && el("p", className, ...fill(text, index));
  const steps = lesson.steps.map((step, index) => {
    const texts = step.texts[language.code];
    const picture = pictureOf(step, { language, methods });
    picture.reveal?.(false);
    const choices = texts.choices.map((text, choice) => el("li", "", choice === step.right ? "☑ " : "☐ ", ...fill(text, index)));
    return attributes(el("section", step.deeper ? "deeper" : "", el("h2", "sl-title", places[index] + "\u2002" + titleOf(places[index])),
      said("sl-said", texts.before, index), picture.node && el("div", "sl-picture", picture.node), said("sl-question", texts.question, index),
      choices.length > 0 && el("ul", "", ...choices), said("sl-said", texts.answer, index)), { "data-kind": step.kind });
  });
  const { title, about, end } = lesson.languages[language.code];
  const main = attributes(el("main", "specviz sl-player sl-handout", el("h1", "sl-title", title), el("p", "sl-said", about), ...steps,
    el("p", "sl-said", end)), { "data-theme": "light" });
  const sheets = STYLES.map((name) => attributes(el("link"), { rel: "stylesheet", href: new URL(name + ".css", import.meta.url).href }));
  const fonts = [...document.querySelectorAll("style")].filter((each) => each.textContent.includes("@font-face")).map((each) => each.cloneNode(true));
  own.documentElement.lang = language.code;
  own.head.replaceChildren(attributes(el("base"), { href: document.baseURI }), attributes(el("title"), {}), ...fonts, ...sheets);
  own.title = title;
  own.body.replaceChildren(main);
  Promise.all(sheets.map((sheet) => new Promise((done) => { sheet.onload = sheet.onerror = done; }))).then(() => page.print());
}
