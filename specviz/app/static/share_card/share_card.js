/**
 * A run as a picture to share: its text in colour, its figures, method and models, drawn on a canvas of 1200 × 630, the size of a
 * link preview. All text of a trace is untrusted and is drawn as text, never read as markup. Uses a trace's run and rounds and
 * the page's colours, but no view and no server.
 */

import { list, string } from "../shared/dom.js";
import { download } from "../shared/download.js";
import { settingsWords } from "../trace_view/figures.js";

const WIDTH = 1200, HEIGHT = 630, MARGIN = 56;
const SERIF = '"SpecViz Serif", "Iowan Old Style", Charter, Georgia, serif';
const SANS = '"Inter", system-ui, sans-serif';
const MONO = '"JetBrains Mono", ui-monospace, Menlo, Consolas, monospace';
const FACES = ["400 26px " + SERIF, "700 26px " + SERIF, "600 26px " + SANS, "400 26px " + MONO, "700 26px " + MONO];
const NAMES = ["page", "panel", "line", "text", "muted", "drafter", "drafter-tint", "verifier", "verifier-tint", "verifier-ink"];
const ELLIPSIS = "…";
const SIZES = [36, 31, 26]; // of the text: the largest at which it is all there, else the smallest
const CODE = /```|[^\n]\n[ \t]{2,}\S|[;{}]\n/;

/**
 * The card of a run, as a PNG.
 *
 * @param run      the trace's entry of type "run"
 * @param rounds   its entries of type "round", in order
 * @param figures  [value, words] of each figure, as texts: [["85 %", "accepted"], …]; up to four are drawn
 * @param dark     whether it is drawn for a dark page
 * @param methods  name -> {title, …}, as the page's views have them
 * @param host     an element of a component whose style sheet has the page's colours
 */
export async function shareCard(run, rounds, figures, { dark = false, methods = {}, host = document.querySelector(".specviz") } = {}) {
  const colours = coloursOf(host, dark);
  await Promise.all(FACES.map((face) => document.fonts.load(face).catch(() => [])));
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [WIDTH, HEIGHT];
  const pen = canvas.getContext("2d");
  pen.textBaseline = "alphabetic";
  box(pen, colours.page, 0, 0, WIDTH, HEIGHT);
  head(pen, colours, settingsWords(run, methods));
  text(pen, colours, run, rounds);
  foot(pen, colours, run, figures);
  return new Promise((done, failed) => canvas.toBlob((blob) => (blob ? done(blob) : failed(new Error("no picture"))), "image/png"));
}

/** Draw the card and let the browser save it. */
export async function saveShareCard(run, rounds, figures, options) {
  const blob = await shareCard(run, rounds, figures, options);
  download("specviz-" + (string(run.method).replace(/\W/g, "") || "run") + ".png", "image/png", blob);
}

/** The page's colours in a theme, which may be the one that the page is not in. */
function coloursOf(host, dark) {
  const probe = document.createElement("div");
  probe.className = "specviz";
  probe.dataset.theme = dark ? "dark" : "light";
  probe.hidden = true;
  host.after(probe);
  const style = getComputedStyle(probe);
  const found = Object.fromEntries(NAMES.map((name) => [name, style.getPropertyValue("--sv-" + name).trim()]));
  probe.remove();
  return found;
}

// ---- parts

function box(pen, fill, x, y, width, height, radius = 0) {
  pen.fillStyle = fill;
  pen.beginPath();
  pen.roundRect(x, y, width, height, radius);
  pen.fill();
}

/** One line of text, cut with an ellipsis where it is too long; its width. */
function say(pen, words, x, y, font, fill, most = Infinity) {
  pen.font = font;
  pen.fillStyle = fill;
  const shown = cut(pen, words.replace(/\s+/g, " "), most);
  pen.fillText(shown, x, y);
  return pen.measureText(shown).width;
}

function cut(pen, words, most) {
  if (pen.measureText(words).width <= most) return words;
  const letters = [...words];
  while (letters.length > 0 && pen.measureText(letters.join("").trimEnd() + ELLIPSIS).width > most) letters.pop();
  return letters.join("").trimEnd() + ELLIPSIS;
}

function head(pen, colours, [title, ...settings]) {
  [0, 1, 2, 3].forEach((at) => box(pen, colours[at < 3 ? "drafter" : "verifier"], MARGIN + 13 * at, 54, 10, 18, 2));
  box(pen, colours.verifier, MARGIN + 39, 47, 10, 4, 1);
  say(pen, "SpecViz", MARGIN + 64, 72, "600 26px " + SANS, colours.text);
  pen.textAlign = "right";
  say(pen, title, WIDTH - MARGIN, 62, "600 22px " + SANS, colours.text, 700);
  say(pen, settings.join(" · "), WIDTH - MARGIN, 88, "400 17px " + SANS, colours.muted, 780);
  pen.textAlign = "left";
}

function foot(pen, colours, run, figures) {
  let x = MARGIN;
  for (const [value, words] of list(figures).slice(0, 4)) {
    const wide = Math.max(say(pen, string(value), x, 560, "600 40px " + SANS, colours.text, 260),
      say(pen, string(words), x, 586, "400 17px " + SANS, colours.muted, 260));
    x += wide + 44;
  }
  const keys = run.method === "verifier_only" ? [["verifier", "written by the verifier"]]
    : run.method === "drafter_only" ? [["drafter", "written by the drafter"]]
    : [["drafter", "drafted and kept"], ["verifier", "the verifier’s own"]];
  keys.forEach(([name, words], at) => {
    const y = 586 - 28 * (keys.length - 1 - at);
    pen.font = "400 17px " + SANS;
    const left = WIDTH - MARGIN - pen.measureText(words).width;
    if (left < x + 40) return; // the figures need the room
    box(pen, colours[name + "-tint"], left - 36, y - 16, 26, 20, 3);
    if (name === "verifier" && keys.length > 1) box(pen, colours.verifier, left - 36, y - 16, 26, 3);
    say(pen, words, left, y, "400 17px " + SANS, colours.muted);
  });
}

// ---- the run's text

/** The text of the run in a panel, below its prompt. */
function text(pen, colours, run, rounds) {
  const top = 112, bottom = 506, inner = MARGIN + 28, wide = WIDTH - 2 * inner;
  box(pen, colours.line, MARGIN, top, WIDTH - 2 * MARGIN, bottom - top, 14);
  box(pen, colours.panel, MARGIN + 1, top + 1, WIDTH - 2 * MARGIN - 2, bottom - top - 2, 13);
  let y = top + 28;
  if (string(run.prompt).trim()) {
    say(pen, string(run.prompt).trim(), inner, y + 16, "400 20px " + SERIF, colours.muted, wide);
    y += 36;
  }
  const alone = string(run.method).endsWith("_only");
  const tokens = list(rounds).flatMap((round) => list(round?.tokens));
  const whole = tokens.map((token) => string(token?.text)).join("");
  const family = CODE.test(whole) ? MONO : SERIF;
  let size;
  const fontOf = (piece) => (piece.own && !alone ? "700 " : "400 ") + (family === MONO ? 0.88 : 1) * size + "px " + family;
  const measure = (piece, letters = piece.text) => {
    pen.font = fontOf(piece);
    return pen.measureText(letters).width;
  };
  const own = (token) => (alone ? run.method === "verifier_only" : token?.accepted === false);
  const pieces = tokens.map((token) => ({ text: string(token?.text), own: own(token) }));
  let laid;
  for (size of SIZES) {
    laid = lines(pieces, measure, wide, Math.floor((bottom - y - 10) / Math.round(1.6 * size)));
    if (!laid.isCut) break;
  }
  const high = Math.round(1.6 * size);
  for (const line of laid.shown) {
    let x = inner;
    for (const piece of line) {
      const width = measure(piece);
      const ink = piece.text.trim();
      if (ink && ink !== ELLIPSIS) {
        const from = x + measure(piece, piece.text.slice(0, piece.text.length - piece.text.trimStart().length));
        box(pen, colours[piece.own ? "verifier-tint" : "drafter-tint"], from - 1, y + 3, measure(piece, ink) + 2, high - 8, 3);
        if (piece.own && !alone) box(pen, colours.verifier, from - 1, y + 3, measure(piece, ink) + 2, 3);
      }
      pen.font = fontOf(piece);
      pen.fillStyle = piece.own && !alone ? colours["verifier-ink"] : colours.text;
      pen.fillText(piece.text, x, y + high - Math.round(size / 2));
      x += width;
    }
    y += high;
  }
}

/** Words, each of pieces of one token: a word begins at white space, and at a line break, which is a piece of its own. */
function* words(tokens) {
  let word = [];
  for (const { text: said, own } of tokens) {
    for (const part of said.replace(/\r\n?/g, "\n").replace(/\t/g, "    ").split(/(\n)|(?<=\S)(?=\s)/)) {
      if (!part) continue;
      if (part === "\n" || /^\s/.test(part)) {
        if (word.length > 0) yield word;
        word = [];
      }
      if (part === "\n") yield [{ text: "\n", own }];
      else word.push({ text: part, own });
    }
  }
  if (word.length > 0) yield word;
}

/** {shown, isCut}: at most so many lines of pieces no wider than that; an ellipsis ends the last one where there is more. */
function lines(tokens, measure, wide, most) {
  const found = [[]];
  let used = 0;
  const end = () => {
    used = 0;
    found.push([]);
  };
  const put = (piece) => {
    used += measure(piece);
    found.at(-1).push(piece);
  };
  const sum = (word) => word.reduce((total, piece) => total + measure(piece), 0);
  for (const word of words(tokens)) {
    if (found.length > most) break;
    if (word[0].text === "\n") {
      if (found.at(-1).length > 0 || found.length > 1) end();
      continue;
    }
    if (used > 0 && used + sum(word) > wide) {
      end();
      word[0].text = word[0].text.trimStart();
    }
    for (const piece of word) {
      let rest = [...piece.text];
      while (rest.length > 0 && found.length <= most) {
        let fits = rest.length;
        while (fits > 1 && used + measure(piece, rest.slice(0, fits).join("")) > wide) fits = Math.min(fits - 1, Math.ceil(fits * 0.9));
        put({ ...piece, text: rest.slice(0, fits).join("") });
        rest = rest.slice(fits);
        if (rest.length > 0) end();
      }
    }
  }
  if (found.length <= most) return { shown: found, isCut: false };
  const shown = found.slice(0, most);
  const last = shown.at(-1);
  const dots = { text: " " + ELLIPSIS, own: false };
  while (last.length > 0 && sum(last) + measure(dots) > wide) {
    const piece = last.at(-1);
    piece.text = [...piece.text].slice(0, -1).join("");
    if (!piece.text) last.pop();
  }
  last.push(dots);
  return { shown, isCut: true };
}
