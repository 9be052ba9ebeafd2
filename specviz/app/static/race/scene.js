/**
 * Draws one lane of the race: its text, whose layout is fixed from the start, and the current round. Every frame is a
 * function of the show's clock; motion uses only transform and opacity. Knows no buttons and no closing sentences.
 *
 * createLane(root, lane, {last, flat, still}) -> {measure(), draw(shown), text}
 *   root    the lane's element
 *   lane    from planRace
 *   last    how many tokens the text ends with in sight; the same for both lanes
 *   flat    whether all tokens are of one kind, so that none is marked
 *   still   () -> whether animation is off
 */

import { el } from "../shared/dom.js";
import { FLIGHT } from "./schedule.js";
import { chip, written } from "./chips.js";

const ARRIVAL = 0.14;
const FALL = 0.4;
const clamp = (value) => Math.min(1, Math.max(0, value));
const eased = (value) => 1 - (1 - value) ** 3;

export function createLane(root, lane, { last, flat = false, still = () => false }) {
  const find = (selector) => root.querySelector(selector);
  const text = find(".sr-text");
  const tray = find(".sr-tray");
  const say = find(".sr-say");
  const tokens = lane.tokens.map((token) => written(token, flat ? "flat" : token.kept ? "kept" : "own"));
  text.replaceChildren(...tokens);
  let places = [], // of the tokens, from the lane's corner, with the text not scrolled
    box = null, // of the text
    seen = 0,
    next = 0, // the first round that is not over
    layers = new Map(),
    spoken = "",
    scrolled = 0;

  /** Reads where everything is; to be called whenever widths have changed. */
  function measure() {
    const corner = root.getBoundingClientRect();
    const frame = text.getBoundingClientRect();
    const line = Number.parseFloat(getComputedStyle(text).lineHeight) || 1;
    text.style.paddingBlockEnd = "";
    box = { height: text.clientHeight, hides: text.scrollHeight > text.clientHeight + 1, line };
    if (box.hides) text.style.paddingBlockEnd = (box.height % line) + "px"; // so that its end, too, begins with a whole line
    places = tokens.map((token) => {
      const rects = token.getClientRects();
      const at = rects[0] ?? frame;
      const low = rects[rects.length - 1] ?? frame;
      return { x: at.left - corner.left, y: at.top - corner.top + text.scrollTop, bottom: low.bottom - frame.top + text.scrollTop };
    });
    // What can be scrolled must be reached by keys too.
    if (box.hides) text.tabIndex = 0;
    else text.removeAttribute("tabindex");
    for (const layer of layers.values()) layer.node.remove();
    layers = new Map();
  }

  /** Brings the line of the last of so many tokens into view, by whole lines. */
  function follow(count) {
    const beyond = count ? places[count - 1].bottom - box.height : 0;
    const top = box.line * Math.max(0, Math.ceil((beyond - 3) / box.line));
    if (top === scrolled) return;
    text.scrollTop = top;
    scrolled = text.scrollTop;
  }

  function draw(shown) {
    let count = seen;
    while (count < tokens.length && lane.landings[count] <= shown) count += 1;
    while (count > 0 && lane.landings[count - 1] > shown) count -= 1;
    for (; seen < count; seen += 1) tokens[seen].classList.add("on");
    for (; seen > count; seen -= 1) tokens[seen - 1].classList.remove("on");
    const over = shown >= lane.shownEnd + FLIGHT;
    if (box?.hides) follow(over ? last : count);
    if (next && lane.rounds[next - 1].gone > shown) next = 0;
    while (next < lane.rounds.length && lane.rounds[next].gone <= shown) dismiss(next++);
    for (let at = next; at < lane.rounds.length && lane.rounds[at].shown.start <= shown; at += 1) drawRound(at, shown);
    for (const at of [...layers.keys()]) if (lane.rounds[at].shown.start > shown) dismiss(at);
  }

  function dismiss(at) {
    layers.get(at)?.node.remove();
    layers.delete(at);
  }

  function layerOf(at) {
    if (layers.has(at)) return layers.get(at);
    const slots = lane.rounds[at].slots.map((slot) => {
      const draft = chip(slot.text, slot.fate === "own" ? "own" : "");
      const instead = slot.instead === undefined ? null : chip(slot.instead, "own instead");
      return { slot, draft, instead, node: el("span", "sr-slot", draft, instead), fate: "", styles: new Map() };
    });
    const node = el("div", "sr-layer", ...slots.map((each) => each.node));
    tray.append(node);
    const corner = root.getBoundingClientRect();
    for (const each of slots) {
      const rect = each.node.getBoundingClientRect();
      [each.x, each.y] = [rect.left - corner.left, rect.top - corner.top];
    }
    for (const each of slots) {
      place(each, each.draft, 0, 0, 0);
      if (each.instead) place(each, each.instead, 0, 0, 0);
    }
    const layer = { node, slots, checking: false };
    layers.set(at, layer);
    return layer;
  }

  /** Sets what has changed of a chip's place and opacity. */
  function place(each, node, x, y, opacity, turn = 0) {
    const transform = x || y || turn ? "translate(" + x.toFixed(1) + "px," + y.toFixed(1) + "px)" + (turn ? " rotate(" + turn.toFixed(1) + "deg)" : "") : "none";
    const key = transform + opacity.toFixed(2);
    if (each.styles.get(node) === key) return;
    each.styles.set(node, key);
    node.style.transform = transform;
    node.style.opacity = opacity.toFixed(2);
  }

  function drawRound(at, shown) {
    const round = lane.rounds[at];
    const layer = layerOf(at);
    const { check: [from, verdict], leave } = round.shown;
    const checking = round.drafted > 0 && shown >= from && shown < verdict;
    if (checking !== layer.checking) layer.node.classList.toggle("checking", (layer.checking = checking));
    tell(round, shown);
    for (const each of layer.slots) drawSlot(each, shown, verdict, leave);
  }

  function drawSlot(each, shown, verdict, leave) {
    const { slot } = each;
    const decided = shown >= verdict;
    const fate = slot.fate === "own" ? "own" : decided ? slot.fate : "";
    if (fate !== each.fate) each.draft.className = "sr-chip " + (each.fate = fate);
    const came = still() ? Number(shown >= slot.shownAt - ARRIVAL) : clamp((shown - slot.shownAt + ARRIVAL) / ARRIVAL);
    if (shown < slot.leaves && !(slot.fate === "rejected" && decided)) {
      place(each, each.draft, still() ? 0 : (came - 1) * 28, 0, came);
      return;
    }
    if (slot.fate === "unseen") {
      place(each, each.draft, 0, 0, 1 - clamp((shown - leave) / 0.2));
    } else if (slot.fate === "rejected") {
      const fallen = still() ? Number(shown >= slot.leaves) : clamp((shown - Math.max(verdict + 0.12, leave - 0.2)) / FALL);
      place(each, each.draft, 0, still() ? 0 : 34 * fallen ** 2, 1 - fallen ** 2, still() ? 0 : 8 * fallen);
      fly(each, each.instead, shown, clamp((shown - verdict - 0.12) / 0.15));
    } else fly(each, each.draft, shown, 1);
  }

  /** A chip on its way from its slot to its place in the text. */
  function fly(each, node, shown, opacity) {
    const { slot } = each;
    const way = clamp((shown - slot.leaves) / FLIGHT);
    const to = places[slot.token];
    if (still() || !to || way === 0) return place(each, node, 0, 0, shown >= slot.lands ? 0 : opacity);
    const share = eased(way);
    place(each, node, share * (to.x - each.x - 6), share * (to.y - scrolled - each.y - 4), way === 1 ? 0 : opacity * (1 - 0.4 * way));
  }

  function tell(round, shown) {
    const { check: [from, verdict], leave } = round.shown;
    const n = round.drafted;
    const slow = leave - round.shown.start > 0.6; // phases that pass at a glance are not named
    let words = "";
    if (!n) words = "the verifier writes one token";
    else if (shown >= verdict) words = round.replaced ? round.kept + " kept, 1 replaced" : round.kept === n ? "all " + n + " kept" : round.kept + " kept";
    else if (slow && shown >= from) words = "the verifier checks all in one call";
    else if (slow || !spoken) words = "the drafter guesses ahead";
    if (words && words !== spoken) say.textContent = spoken = words;
  }

  return { measure, draw, text, say, tray };
}
