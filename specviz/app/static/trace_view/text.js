/**
 * The text of a run, one node a token: colour and underline say whether it was accepted or resampled. One token can be
 * pinned; otherwise the one last pointed at or focused is shown. Knows tokens and rounds; draws no inspector and no chart.
 *
 * createText(box, {onShow, onPin, onSelect}) -> see the returned object
 *   onShow    called with (item, pinned) when another token is shown, (null, false) when none is. An item is {token,
 *             round, offset, first, index, node, group}: `index` counts over the run, `offset` in the round, `first` is
 *             the index of the round's first token
 *   onPin     called with the pinned index, or null
 *   onSelect  called with (index, text) when a token is pinned by hand
 */

import { el, isExamined, nameOf, spoken, string, visible } from "../shared/dom.js";

/** The token's node: its own text and nothing else, so that the nodes together read as the trace's text. */
function tokenNode({ token, index }) {
  const node = el("span", "sv-token " + (token.accepted ? "accepted" : "resampled"));
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
  token.text.split("\n").forEach((piece, at) => {
    // The mark is drawn by the style sheet, before the break that stays in the text.
    if (at > 0) node.append(el("i", "sv-newline"), "\n");
    node.append(piece);
  });
  return node;
}

function spokenVerdict(token) {
  if (token.accepted) return isExamined(token) ? "accepted" : "drafted";
  return token.draft ? "resampled, rejected draft " + spoken(token.draft) : "written by the verifier";
}

/** The rejected draft, struck through, before what replaced it. */
function draftNode({ token, index }) {
  const text = string(token.draft.text);
  const node = el("del", "sv-draft", text.trim() === "" ? nameOf(token.draft) : visible(text.trim()));
  node.dataset.for = String(index);
  node.dataset.testid = "draft";
  node.setAttribute("aria-hidden", "true");
  return node;
}

/** The nodes of one round, wrapped so that a round can be marked as one. */
function roundNode(items) {
  const group = el("span", "sv-round");
  group.setAttribute("role", "presentation");
  for (const item of items) {
    if (item.token.draft) group.append(el("wbr"), draftNode(item)); // a line may break before the pair, not in it
    Object.assign(item, { node: tokenNode(item), group });
    group.append(item.node);
  }
  return group;
}

export function createText(box, { onShow, onPin, onSelect }) {
  let items, shown, pinned, tabStop;
  let added; // rounds that are not on the page yet
  let visibleTokens; // all, unless a replay has not come to them
  let following; // whether the box scrolls along with what is written

  function reset() {
    items = [];
    shown = pinned = tabStop = null;
    added = document.createDocumentFragment();
    visibleTokens = 0;
    following = true;
    box.replaceChildren();
    show(null);
  }

  /** Take in a round; its items. */
  function add(round) {
    const first = items.length;
    const fresh = round.tokens.map((token, offset) => ({ token, round, offset, first, index: first + offset }));
    items.push(...fresh);
    visibleTokens = items.length;
    added.append(roundNode(fresh));
    return fresh;
  }

  /** Put the rounds that were added on the page. */
  function flush() {
    box.append(added);
    if (tabStop === null && items.length > 0) setTabStop(0);
    follow();
  }

  /** Show so many tokens and rejected drafts only. Later ones keep their nodes, out of sight. */
  function showUpTo(tokens, drafts) {
    visibleTokens = tokens;
    for (const { node, index } of items) node.hidden = index >= tokens;
    for (const node of box.querySelectorAll(".sv-draft")) node.hidden = Number(node.dataset.for) >= drafts;
    if (pinned !== null && pinned >= tokens) setPinned(null);
    if (pinned === null) show(tokens > 0 ? tokens - 1 : null);
    if (tokens > 0) setTabStop(Math.min(tabStop ?? 0, tokens - 1));
    follow();
  }

  function follow() {
    if (following) box.scrollTop = box.scrollHeight;
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

  /** Scroll the box, and only it, until the node is in sight. */
  function reveal(node) {
    const frame = box.getBoundingClientRect();
    const spot = node.getBoundingClientRect();
    if (spot.top < frame.top) box.scrollTop -= frame.top - spot.top + 8;
    else if (spot.bottom > frame.bottom) box.scrollTop += spot.bottom - frame.bottom + 8;
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
  box.addEventListener("scroll", () => {
    following = box.scrollHeight - box.scrollTop - box.clientHeight < 24;
  });
  return { reset, add, flush, showUpTo, pin, unpin, clear, mark, items: () => items, pinned: () => pinned };
}
