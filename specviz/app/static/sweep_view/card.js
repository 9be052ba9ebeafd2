/**
 * The chosen point: its figures, and one of its texts beside the verifier's for the same question. On a phone it is a sheet. All text
 * is untrusted and becomes text nodes.
 *
 * createCard(panel, {onOpen}) -> {update(card), mark(isFinding), open()}
 *   onOpen  called with the index of the text to open in Compare
 *   update  takes {title, rule, reading, figures: [{title, value, interval, beside}], said, texts: [{prompt, right, own, verifier, opens}], first},
 *           where `own` and `verifier` of a text are {who, text, right}
 *   mark    says whether the sentence at the head of the page is about this point
 */

import { el, list, string } from "../shared/dom.js";
import { createSheet } from "../trace_view/sheet.js";

export function createCard(panel, { onOpen = () => {} } = {}) {
  const find = (name) => panel.querySelector(`[data-testid="point-${name}"]`);
  let texts = [],
    at = 0;

  function update(card) {
    texts = list(card.texts);
    at = Math.min(card.first ?? 0, Math.max(texts.length - 1, 0));
    find("title").textContent = string(card.title);
    find("rule").textContent = string(card.rule);
    find("reading").textContent = string(card.reading);
    find("figures").replaceChildren(...list(card.figures).map(({ title, value, interval, beside }) =>
      el("div", "", el("dt", "", title), el("dd", "", value, interval && el("span", "", interval), beside && el("span", "", beside)))));
    find("said").replaceChildren(...list(card.said).map((words) => el("span", "", words)));
    find("item").hidden = texts.length === 0;
    showText();
  }

  function showText() {
    const text = texts[at];
    if (!text) return;
    find("number").textContent = `question ${at + 1} of ${texts.length}`;
    find("before").disabled = at === 0;
    find("after").disabled = at === texts.length - 1;
    find("prompt").textContent = text.prompt;
    find("answers").textContent = text.right ? "Counts as right: " + text.right : "";
    find("texts").replaceChildren(...[["own", text.own], ["verifier", text.verifier]].filter(([, side]) => side).map(([name, side]) => {
      const mark = side.right === null ? "" : side.right ? "✓ right" : "✗ wrong";
      const node = el("figure", "", el("figcaption", "", el("span", "", side.who), el("span", "", mark)), el("blockquote", "", side.text));
      node.style.setProperty("--st-edge", `var(--sv-${name === "own" ? "target" : "verifier"})`);
      return node;
    }));
    if (text.verifier && text.own.text === text.verifier.text) find("texts").append(el("p", "sv-caption", "Both wrote the same."));
    find("open").hidden = !text.opens;
  }

  function mark(isFinding) {
    find("role").textContent = isFinding ? "★ The finding’s point" : "The point you chose";
    panel.classList.toggle("is-finding", isFinding);
  }

  function turn(by) {
    at += by;
    showText();
  }

  find("before").addEventListener("click", () => turn(-1));
  find("after").addEventListener("click", () => turn(1));
  find("open").addEventListener("click", () => onOpen(at));
  return { update, mark, open: createSheet(panel, () => {}).open };
}
