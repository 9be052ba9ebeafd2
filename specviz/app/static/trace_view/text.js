/**
 * The text of a run, one node per token: tint, weight and a bar above show which model decided it; code is monospaced. One token can
 * be pinned; otherwise the token last pointed at or focused is shown. Knows tokens and rounds; draws no inspector and no chart.
 *
 * createText(box, {scroller, latest, onShow, onPin, onSelect}) -> see the returned object
 *   scroller  the element that scrolls the text; by default the box itself
 *   latest    whether the latest token is shown while none is chosen
 *   onShow    called with (item, pinned) when another token is shown, (null, false) when none is. An item is {token,
 *             round, offset, first, index, node, group}: `index` counts over the run, `offset` in the round, `first` is
 *             the index of the round's first token
 *   onPin     called with the pinned index, or null
 *   onSelect  called with (index, text) when a token is pinned by hand
 */

import { attributes, el, isExamined, nameOf, spoken, string, visible } from "../shared/dom.js";

/**
 * The token's node: its own text and nothing else, so that the nodes together read as the trace's text. White space at its
 * ends is not coloured, unless it is all there is.
 */
function tokenNode({ token, index }, isCode) {
  const node = el("span", "sv-token " + (token.accepted ? "accepted" : "resampled") + (isCode ? " is-code" : ""));
  node.dataset.index = String(index);
  node.dataset.testid = "token";
  node.tabIndex = -1;
  node.setAttribute("role", "option");
  node.setAttribute("aria-selected", "false");
  node.setAttribute("aria-label", spoken(token) + ", " + spokenVerdict(token));
  if (token.special) {
    node.classList.add("special");
    node.dataset.label = visible(token.label) || "#" + token.id;
  } else if (token.text === "") {
    node.classList.add("partial");
  }
  const [, before, core, after] = /^(\s*)([^]*?)(\s*)$/.exec(token.text);
  if (core === "") node.append(...pieces(before, "sv-ink"));
  else node.append(...pieces(before, ""), el("span", "sv-ink", ...pieces(core, "")), ...pieces(after, ""));
  return node;
}

/** A text as nodes; line breaks get a mark, drawn by the style sheet before the break that stays in the text. */
function pieces(text, className) {
  return text.split("\n").flatMap((piece, at) => {
    const own = piece === "" ? [] : [className ? el("span", className, piece) : piece];
    return at === 0 ? own : [el("i", "sv-newline"), "\n", ...own];
  });
}

function spokenVerdict(token) {
  if (token.accepted) return isExamined(token) ? "drafted and accepted" : "drafted";
  return token.draft ? "the verifier’s own, rejected draft " + spoken(token.draft) : "written by the verifier";
}

/** The rejected draft token, a chip above what replaced it, or before it where drafts are shown in the text. */
function draftNode({ token, index }) {
  const text = string(token.draft.text);
  const node = el("del", "sv-draft", text.trim() === "" ? nameOf(token.draft) : visible(text.trim()));
  node.dataset.for = String(index);
  node.dataset.testid = "draft";
  node.setAttribute("aria-hidden", "true");
  return node;
}

/** Whether text is code, by the fences ``` around it; told token by token. */
function createFences() {
  let tail = "";
  let inside = false;
  return (text) => {
    const before = inside;
    tail += text;
    for (let at = tail.indexOf("```"); at >= 0; at = tail.indexOf("```")) {
      inside = !inside;
      tail = tail.slice(at + 3);
    }
    tail = tail.slice(-2);
    return before || inside;
  };
}

/** The nodes of one round, wrapped so that a round can be marked as one. */
function roundNode(items, isCode) {
  const group = el("span", "sv-round");
  group.setAttribute("role", "presentation");
  for (const item of items) {
    if (item.token.draft) group.append(el("wbr"), draftNode(item)); // a line may break before the pair, not in it
    Object.assign(item, { node: tokenNode(item, isCode(item.token.text)), group });
    group.append(item.node);
  }
  return group;
}

export function createText(box, { scroller = box, latest = true, onShow, onPin, onSelect }) {
  let items, shown, pinned, tabStop;
  let added; // rounds that are not on the page yet
  let paragraph; // takes the next round; those before it end with a line break, and need not be laid out again
  let visibleTokens; // all, unless a replay has not come to them
  let isCode;
  let following; // whether the box scrolls along with what is written
  const waiting = attributes(el("span", "sv-pending"), { "aria-hidden": "true" });

  function reset() {
    items = [];
    shown = pinned = tabStop = null;
    added = document.createDocumentFragment();
    paragraph = null;
    visibleTokens = 0;
    isCode = createFences();
    following = true;
    box.replaceChildren();
    show(null);
  }

  /** Put nodes behind all others, in the paragraph that is being written. */
  function write(nodes, ends) {
    if (!paragraph) added.append((paragraph = attributes(el("div"), { role: "presentation" })));
    paragraph.append(...nodes);
    if (ends) paragraph = null;
  }

  /** Begin with what a fork keeps of another run, and with the token that somebody chose to come next. */
  function begin(kept) {
    const chosen = string(kept.chosen_text);
    const parts = [el("span", "sv-kept", string(kept.text))];
    if (Number.isInteger(kept.chosen)) {
      parts.push(attributes(el("span", "sv-chosen", chosen), { title: "Chosen by hand: the models go on from here" }));
    }
    isCode(string(kept.text) + chosen);
    write(parts, false);
  }

  /** Take in a round; its items. */
  function add(round) {
    const first = items.length;
    const fresh = round.tokens.map((token, offset) => ({ token, round, offset, first, index: first + offset }));
    items.push(...fresh);
    visibleTokens = items.length;
    write([roundNode(fresh, isCode)], fresh.at(-1)?.token.text.endsWith("\n"));
    return fresh;
  }

  /** Take in the end of a run that was cut: what was unfinished then stands with the last token. */
  function end(tail) {
    if (tail) items.at(-1)?.node.append(el("span", "sv-ink", tail));
  }

  /** Put the rounds that were added on the page. */
  function flush() {
    box.append(added);
    if (tabStop === null && items.length > 0) setTabStop(0);
    showLatest();
    follow();
  }

  /** Show so many tokens and rejected drafts only, and behind them the nodes of what is `pending`. Later ones keep their nodes, out of sight. */
  function showUpTo(tokens, drafts, pending = []) {
    visibleTokens = tokens;
    waiting.replaceChildren(...pending);
    if (pending.length === 0) waiting.remove();
    else if (tokens > 0) items[tokens - 1].node.after(waiting);
    else box.prepend(waiting);
    for (const { node, index } of items) node.hidden = index >= tokens;
    for (const node of box.querySelectorAll(".sv-draft")) node.hidden = Number(node.dataset.for) >= drafts;
    if (pinned !== null && pinned >= tokens) setPinned(null);
    showLatest();
    if (tokens > 0) setTabStop(Math.min(tabStop ?? 0, tokens - 1));
    if (items[tokens - 1]) reveal(pending.length > 0 ? waiting : items[tokens - 1].node);
  }

  /** Show a token, without the focus and the pin, unless the reader has chosen one. */
  function look(index) {
    if (pinned === null && items[index]) show(index);
  }

  /** The last token on the page is shown, unless the reader has chosen one or points at one. */
  function showLatest() {
    if (latest && pinned === null && !box.matches(":hover")) show(visibleTokens > 0 ? visibleTokens - 1 : null);
  }

  function follow() {
    if (following) scroller.scrollTop = scroller.scrollHeight;
  }

  // ---- which token is shown, and which is pinned

  function show(index) {
    items[shown]?.node.classList.remove("is-shown");
    items[shown]?.group.classList.remove("is-active");
    shown = index;
    const item = items[index];
    item?.node.classList.add("is-shown");
    item?.group.classList.add("is-active");
    onShow(item ?? null, item !== undefined && pinned === index);
  }

  function setPinned(index) {
    for (const [at, on] of [[pinned, false], [index, true]]) {
      items[at]?.node.classList.toggle("is-pinned", on);
      items[at]?.node.setAttribute("aria-selected", String(on));
    }
    pinned = index;
    onPin(index);
  }

  function pin(index) {
    if (!items[index]) return;
    setPinned(index);
    show(index);
    setTabStop(index);
    reveal(items[index].node);
    onSelect(index, items[index].token.text);
  }

  function toggle(index) {
    if (index !== pinned) return pin(index);
    setPinned(null);
    show(index);
  }

  /** Unpin a token that stays shown, and give it the focus. */
  function unpin() {
    items[pinned].node.focus({ preventScroll: true });
    toggle(pinned);
  }

  /** Unpin, and show no token. */
  function clear() {
    setPinned(null);
    show(null);
  }

  /** Put a badge behind a token, and words for those who cannot see it; several stand side by side. */
  function mark(index, badge, words) {
    const node = items[index]?.node;
    if (!node) return;
    node.dataset.badge = [node.dataset.badge, badge].filter(Boolean).join(" ");
    node.title = [node.title, words].filter(Boolean).join("; ");
    node.setAttribute("aria-label", node.getAttribute("aria-label") + "; " + words);
  }

  // ---- moving through the tokens

  /** Scroll the text, and only it, until the node is in sight. */
  function reveal(node) {
    const frame = scroller.getBoundingClientRect();
    const spot = node.getBoundingClientRect();
    if (spot.top < frame.top) scroller.scrollTop -= frame.top - spot.top + 8;
    else if (spot.bottom > frame.bottom) scroller.scrollTop += spot.bottom - frame.bottom + 8;
  }

  /** Bring a token into sight; by default the pinned one, after the room for the text has changed. */
  function revealToken(index = pinned) {
    if (!items[index]) return;
    following = false;
    reveal(items[index].node);
  }

  function setTabStop(index) {
    if (items[tabStop]) items[tabStop].node.tabIndex = -1;
    tabStop = index;
    items[index].node.tabIndex = 0;
  }

  function moveTo(index) {
    const item = items[Math.min(Math.max(index, 0), visibleTokens - 1)];
    if (!item) return;
    const wasPinned = pinned !== null;
    item.node.focus();
    if (wasPinned && pinned !== item.index) pin(item.index); // the pin travels with the arrows
  }

  /** The index of the token that an event happened on, or null. */
  function indexAt(event) {
    const node = event.target.closest(".sv-token, .sv-draft");
    return node && box.contains(node) ? Number(node.dataset.index ?? node.dataset.for) : null;
  }

  function onKey(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const at = tabStop ?? 0;
    const { first, round } = items[at] ?? {};
    const goals = { ArrowLeft: at - 1, ArrowRight: at + 1, ArrowUp: items[first - 1]?.first ?? 0,
      ArrowDown: first + round?.tokens.length, Home: 0, End: visibleTokens - 1 };
    if (Object.hasOwn(goals, event.key)) moveTo(goals[event.key]);
    else if (event.key === "Enter" || event.key === " ") toggle(at);
    else return;
    event.preventDefault();
  }

  box.addEventListener("pointerover", (event) => {
    const index = indexAt(event);
    if (event.pointerType === "mouse" && index !== null && pinned === null && index !== shown) show(index);
  });
  box.addEventListener("click", (event) => {
    const index = indexAt(event);
    if (index !== null) toggle(index);
  });
  box.addEventListener("focusin", (event) => {
    const index = indexAt(event);
    if (index === null) return;
    setTabStop(index);
    if (pinned === null) show(index);
  });
  box.addEventListener("keydown", onKey);
  scroller.addEventListener("scroll", () => {
    following = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 24;
  });
  // ---- in two: what a fork shares, and what it does not

  /** Put the tokens from an index on in an element of their own, `.sv-rest`; what stays before them is in `.sv-shared`. */
  function split(index) {
    join();
    const shared = el("div", "sv-shared");
    const rest = el("div", "sv-rest");
    for (const half of [shared, rest]) half.setAttribute("role", "presentation");
    if (index < items.length) {
      let first = items[index].node;
      while (first.previousSibling?.matches?.("wbr, .sv-draft")) first = first.previousSibling;
      const range = document.createRange();
      range.setStartBefore(first);
      range.setEndAfter(box.lastChild);
      rest.append(range.extractContents());
    }
    shared.append(...box.childNodes);
    box.replaceChildren(shared, rest);
  }

  /** One text again: the paragraph and the round that were cut in two are whole. */
  function join() {
    const [shared, rest] = box.children;
    if (!rest?.matches(".sv-rest")) return;
    const after = rest.firstElementChild;
    if (after) {
      const before = shared.lastElementChild;
      before.lastElementChild.append(...after.firstElementChild.childNodes);
      after.firstElementChild.remove();
      before.append(...after.childNodes);
      after.remove();
    }
    box.replaceChildren(...shared.childNodes, ...rest.childNodes);
  }

  /** Begin at the top: a run that is whole when it comes is read from there. */
  function rest() {
    following = false;
    scroller.scrollTop = 0;
  }

  return { reset, begin, add, end, flush, follow, rest, split, join, showUpTo, look, revealToken, pin, unpin, clear, mark, items: () => items, pinned: () => pinned };
}
