/**
 * A run and its branches side by side: the common beginning once, then one column for each, with figures of what follows.
 * Knows the traces of a run and of its forks, but requests none. All text is untrusted: nodes are built from text, never from markup.
 */

import { DASH, attributes, count, el, isExamined, list, nameOf, percent, quoted, string } from "../shared/dom.js";
import { lenienceText } from "./what_if.js";
import { createText } from "./text.js";

export const MOST_KEPT = 3;

/** What a run was made with, as short as it can be said: "Token V3, α 0.5". */
function label(run, methods) {
  const method = Object.hasOwn(methods, run.method) ? methods[run.method] : {};
  const leans = list(method.range)[0] < list(method.range)[1];
  return (string(method.title) || string(run.method)) + (leans ? ", α " + lenienceText(run.lenience) : "");
}

/** What is counted of a token, wherever it stands: it, and its round. */
const cellsOf = (round) => round.tokens.map((token) => ({ token, round }));

/** The figures of some tokens of a run: [value, words, meaning] each. */
function figuresOf(cells, run) {
  const written = cells.filter(({ round }) => round);
  const examined = written.filter(({ token }) => isExamined(token));
  const accepted = examined.filter(({ token }) => token.accepted).length;
  const calls = run.method === "drafter_only" ? 0 : new Set(written.map(({ round }) => round)).size;
  return [
    [examined.length > 0 ? percent(accepted / examined.length) : DASH, "accepted", "Accepted draft tokens out of those examined."],
    [written.length > 0 ? String(calls) : DASH, calls === 1 ? "verifier call" : "verifier calls", "Rounds that wrote these tokens."],
  ];
}

/** The head of a column: its name and buttons, whether it was recorded, and a list for its figures. */
function headNode(name, recorded, ...buttons) {
  return el("header", "sb-head", el("div", "sb-name", attributes(el("h4", "", name), { title: name }), ...buttons),
    el("div", "sb-line", recorded && el("span", "sb-recorded", "recorded"), el("span", "sb-from", "from here on:"), el("dl", "sb-figures")));
}

function showFigures(head, cells, run) {
  head.querySelector(".sb-figures").replaceChildren(...figuresOf(cells, run).map(([value, words, meaning]) =>
    attributes(el("div", "", el("dd", "", value), el("dt", "", words)), { title: meaning })));
}

function button(className, words, label, onClick) {
  const node = attributes(el("button", className, words), { type: "button", "aria-label": label, title: label });
  node.addEventListener("click", onClick);
  return node;
}

/**
 * createBranches(grid, {text, scroller, methods, onItem, onClose}) -> see the returned object
 *   grid      holds the run's own text, and gets the columns
 *   text      that text, from createText
 *   onItem    called with (item, pinned, branch) when a token of a branch is shown
 *   onClose   called with a branch that somebody closes
 */
export function createBranches(grid, { text, scroller, methods, onItem, onClose }) {
  const head = headNode("", false);
  let run, cells, branches, shared;

  function reset() {
    for (const { text: own } of branches ?? []) own.clear(); // a token pinned there would hold the inspector
    [run, cells, branches, shared] = [{}, [], [], Infinity];
    unfork();
  }

  function add(entry) {
    if (entry?.type === "run") run = entry;
    else if (entry?.type === "round") cells.push(...cellsOf(entry));
  }

  // ---- a branch

  /**
   * Open a branch whose trace begins with the entry `opening`. It keeps `tokens` tokens of the run, or of another branch, `from`;
   * `recorded` says that it was written before.
   */
  function open(opening, { id, tokens, from = null, recorded = false }) {
    const chosen = opening.continues?.chosen;
    const name = (Number.isInteger(chosen) ? "“" + nameOf({ id: chosen, text: opening.continues.chosen_text }) + "”, " : "") + label(opening, methods);
    const branch = { id, run: opening, rounds: [], tokens, own: tokens, name, kept: false, done: false, stopped: "", parts: null, error: "" };
    branch.cells = (from?.cells ?? cells).slice(0, tokens);
    branch.head = headNode(name, recorded,
      button("sb-keep", "Keep", "Keep this branch when another one comes", () => keep(branch)),
      button("sb-close", "✕", "Close this branch", () => onClose(branch)));
    branch.before = el("div", "sb-before");
    branch.note = el("p", "sb-note");
    const box = attributes(el("div", "sb-text"), { role: "listbox", "aria-label": name + ", token by token", dir: "auto" });
    branch.node = attributes(el("section", "sb-branch", branch.head, el("div", "sb-body", branch.before, box, branch.note)), { "data-testid": "branch", "aria-label": name });
    branch.text = createText(box, { latest: false, onPin: () => {}, onSelect: () => {}, onShow: (item, pinned) => item && onItem(item, pinned, branch) });
    branch.text.reset();
    if (Number.isInteger(chosen)) {
      branch.cells.push({ token: { id: chosen, text: string(opening.continues.chosen_text) }, round: null });
      branch.own += 1;
      branch.text.begin({ text: "", chosen, chosen_text: opening.continues.chosen_text });
    }
    branches.push(branch);
    part(branch);
    return branch;
  }

  function keep(branch) {
    branch.kept = !branch.kept;
    const keeper = branch.head.querySelector(".sb-keep");
    keeper.setAttribute("aria-pressed", String(branch.kept));
    keeper.textContent = branch.kept ? "Kept" : "Keep";
  }

  /** Take in a later entry of a branch's trace. */
  function take(branch, entry) {
    if (entry?.type === "round") {
      branch.rounds.push(entry);
      branch.cells.push(...cellsOf(entry));
      branch.text.add(entry);
    } else if (entry?.type === "end") {
      Object.assign(branch, { done: true, stopped: string(entry.stop_reason) });
      branch.text.end(string(entry.tail));
    }
    else if (entry?.type === "error") Object.assign(branch, { done: true, error: string(entry.message) });
    part(branch);
  }

  /** Find where a branch differs from the run: at the first token that is another one, or that only one of them has. */
  function part(branch) {
    if (branch.parts !== null) return;
    const at = branch.cells.findIndex((cell, index) => cell.token.id !== cells[index]?.token.id);
    if (at >= 0) branch.parts = at;
    else if (branch.stopped === "eos" && branch.cells.length < cells.length) branch.parts = branch.cells.length;
  }

  // ---- how they lie

  /** Draw what has come: the columns of all branches that part from the run by now. */
  function show() {
    const parted = branches.filter((branch) => branch.parts !== null || branch.error);
    for (const branch of branches) {
      branch.text.flush();
      branch.node.hidden = !parted.includes(branch);
    }
    if (parted.length === 0) return unfork();
    const first = Math.min(...parted.map((branch) => branch.parts ?? branch.tokens));
    const anew = first !== shared;
    if (anew) {
      shared = first;
      for (const node of grid.querySelectorAll(".is-parting")) node.classList.remove("is-parting");
      text.split(shared);
      grid.classList.add("is-forked");
      grid.append(head);
      head.querySelector("h4").textContent = "This run: " + label(run, methods);
      showFigures(head, cells.slice(shared), run);
    }
    grid.style.setProperty("--columns", 1 + parted.length);
    for (const branch of parted) {
      if (!branch.node.isConnected) grid.append(branch.node);
      draw(branch);
      text.items()[branch.parts]?.node.classList.add("is-parting");
    }
    if (anew) scroller.scrollTop += head.getBoundingClientRect().top - scroller.getBoundingClientRect().top - scroller.clientHeight / 3;
  }

  /** Where a branch differs from the run, or that it does not, as a sentence. */
  function words(branch) {
    const chosen = branch.run.continues?.chosen;
    const [from, to] = [cells, branch.cells].map((all) => all[branch.parts]?.token);
    const means = branch.run.method === run.method ? "At α = " + lenienceText(branch.run.lenience) : "With " + branch.name;
    if (branch.parts === null) return [means + " the text is the same" + (["cancelled", "time"].includes(branch.stopped) ? " as far as it came." : ".")];
    if (Number.isInteger(chosen) && branch.parts === branch.tokens) return ["“", quoted(to), "” was chosen by you in place of “", quoted(from ?? {}), "”: the text goes on from there."];
    const lead = branch.parts === 0 ? " the texts differ at their first token: " : " the text is the same for " + count(branch.parts, "token") + "; then ";
    if (!from) return [means + lead + "the run had ended, and “", quoted(to), "” follows."];
    return to ? [means + lead + "“", quoted(from), "” becomes “", quoted(to), "”."] : [means + lead + "it ends."];
  }

  function draw(branch) {
    branch.head.querySelector(".sb-keep").hidden = !branch.done;
    branch.before.textContent = branch.cells.slice(shared, branch.tokens).map(({ token }) => string(token.text)).join("");
    for (const { node, index } of branch.text.items()) {
      node.hidden = branch.own + index < shared;
      node.classList.toggle("is-parting", branch.own + index === branch.parts);
    }
    branch.note.textContent = branch.error || (branch.done ? "" : "writing …");
    branch.note.classList.toggle("is-error", branch.error !== "");
    showFigures(branch.head, branch.cells.slice(shared), branch.run);
  }

  /** The run alone, in one piece. */
  function unfork() {
    shared = Infinity;
    text.join();
    grid.classList.remove("is-forked");
    for (const node of grid.querySelectorAll(".is-parting")) node.classList.remove("is-parting");
    head.remove();
    for (const node of grid.querySelectorAll(".sb-branch")) node.remove();
  }

  /** Close some branches: what the others share may be more now. */
  function close(...closed) {
    branches = branches.filter((each) => !closed.includes(each));
    for (const { node, text: own } of closed) {
      own.clear();
      node.remove();
    }
    shared = Infinity;
    show();
  }

  reset();
  return {
    reset, add, open, take, show, close, words,
    all: () => branches,
    loose: () => branches.filter((branch) => !branch.kept),
  };
}
