/**
 * The card of a point that was chosen in a figure: its figures, and one of its texts beside the verifier's. All text is
 * untrusted and becomes text nodes. Knows no figure: it says that it was closed by the event "specviz-point-closed" of the
 * document, and whoever shows the point listens.
 *
 * createPointCard(root, {onOpen}) -> {update(value)}
 *   root    the element holding point_card.html
 *   onOpen  called with (index) of the text that is to be opened
 *   update  takes JSON: {title, said, figures: [{title, value, interval, beside}], texts: [{prompt, answers, own, verifier, opens}],
 *           first}, a text's sides being {who, text, right}; "" is no card.
 */

import { el, list, string } from "../shared/dom.js";
import { followTheme } from "../shared/theme.js";

export const CLOSED = "specviz-point-closed";

function read(value) {
  try {
    return Object(JSON.parse(value));
  } catch {
    return {};
  }
}

function createPointCard(root, { onOpen = () => {} } = {}) {
  const host = root.matches(".sp-card") ? root : root.querySelector(".sp-card");
  const find = (name) => host.querySelector(`[data-testid="point-${name}"]`);
  const panel = find("card");
  let texts = [],
    at = 0;

  function update(value) {
    const card = read(value);
    panel.hidden = !card.title;
    texts = list(card.texts);
    at = Math.min(card.first ?? 0, Math.max(texts.length - 1, 0));
    if (panel.hidden) return;
    find("title").textContent = string(card.title);
    find("figures").replaceChildren(...list(card.figures).map(({ title, value, interval, beside }) =>
      el("div", "", el("dt", "", title), el("dd", "", value, interval && el("span", "", interval), beside && el("span", "", beside)))));
    host.querySelector(".sp-said").textContent = list(card.said).join(" ");
    host.querySelector(".sp-item").hidden = texts.length === 0;
    showText();
    // Below the figure on a narrow screen: as far into view as it takes to see that it is there.
    requestAnimationFrame(() => panel.scrollIntoView({ block: "nearest" }));
  }

  function showText() {
    const text = texts[at];
    if (!text) return;
    find("number").textContent = `question ${at + 1} of ${texts.length}`;
    find("before").disabled = at === 0;
    find("after").disabled = at === texts.length - 1;
    find("prompt").textContent = text.prompt;
    host.querySelector(".sp-answers").textContent = list(text.answers).length ? "Right: " + text.answers.join(" or ") : "";
    find("texts").replaceChildren(...[["own", text.own], ["verifier", text.verifier]].filter(([, side]) => side).map(([name, side]) => {
      const mark = side.right === null ? "" : side.right ? "✓ right" : "✗ wrong";
      const node = el("figure", "", el("figcaption", "", el("span", "", side.who), el("span", "", mark)), el("blockquote", "", side.text));
      node.style.setProperty("--sp-edge", `var(--sv-${name === "own" ? "target" : "verifier"})`);
      return node;
    }));
    const same = text.verifier && text.own.text === text.verifier.text;
    if (same) find("texts").append(el("p", "sv-caption", "Both wrote the same."));
    find("open").disabled = !text.opens;
    find("open").textContent = text.opens ? "Open in Compare" : "Open in Compare (not for prompts without a chat template)";
  }

  function turn(by) {
    at = Math.min(Math.max(at + by, 0), texts.length - 1);
    showText();
  }

  function close() {
    panel.hidden = true;
    document.dispatchEvent(new Event(CLOSED));
  }

  find("before").addEventListener("click", () => turn(-1));
  find("after").addEventListener("click", () => turn(1));
  find("open").addEventListener("click", () => onOpen(at));
  find("close").addEventListener("click", close);
  panel.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
    else return;
    event.stopPropagation();
  });
  followTheme(host);
  return { update };
}

/** Mount the component in gradio’s element. */
export function mount(element, { props, trigger, watch }) {
  const card = createPointCard(element, { onOpen: (index) => trigger("select", { index, value: "open" }) });
  watch("value", () => card.update(props.value));
  card.update(props.value);
}
