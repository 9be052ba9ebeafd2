/**
 * Saves a run from the page: as JSON lines, or as one HTML file with the whole view and the run, which opens from disk and
 * sends no requests. Knows how to assemble such a file, not what it shows.
 */

import { download } from "../shared/download.js";
import { knownRule } from "../shared/rules.js";
import { parse } from "./reader.js";

/** The lines of a value that belong to the trace itself. */
const traceLines = (value) => value.split("\n").filter((line) => ["run", "round", "end"].includes(parse(line)?.type));

/** The name to save a run under: from its method and seed, with nothing in it that a file system does not take. */
function fileName(run, ending) {
  const plain = (value) => String(value ?? "").replace(/[^A-Za-z0-9_-]/g, "").slice(0, 60);
  return "specviz-" + (plain(run.method) || "run") + "-seed" + (plain(run.seed) || "0") + ending;
}

export function saveTrace(run, value) {
  const lines = traceLines(value);
  download(fileName(run, ".jsonl"), "application/jsonl", lines.map((line) => line + "\n").join(""));
}

/** Fetch one of the app's own files as text. */
async function source(address) {
  const answer = await fetch(new URL(address, document.baseURI));
  if (!answer.ok) throw new Error("not found");
  return answer.text();
}

/**
 * The module at an address and all that it imports, as an import map: names without a folder, each with its code as a
 * data address, since a file opened from disk may import no other file. Names are those of `nameOf`.
 */
async function importMap(entry) {
  const imports = {};
  const nameOf = (address) => "specviz/" + address.pathname.split("/").slice(-2).join("/");
  async function add(address) {
    const name = nameOf(address);
    if (Object.hasOwn(imports, name)) return name;
    imports[name] = ""; // so that a circle ends
    const found = [];
    const code = (await source(address)).replace(/ from "(\.[^"]+)"/g, (_, relative) => {
      found.push(new URL(relative, address));
      return ' from "' + nameOf(found.at(-1)) + '"';
    });
    imports[name] = "data:text/javascript;charset=utf-8," + encodeURIComponent(code);
    for (const each of found) await add(each);
    return name;
  }
  return { entry: await add(new URL(entry, document.baseURI)), imports };
}

/** Data as the text of a script element: no "<" is left, so nothing in it can end the element. */
const asData = (data) => JSON.stringify(data).replace(/</g, "\\u003c");

const SAVED_STYLE = "body { margin: 0; padding: 16px; max-width: 1280px; margin-inline: auto; background: #fff; color: #1f2937; " +
  "font-family: system-ui, sans-serif; } h1 { font-size: 1.3rem; margin: 0; } " +
  "@media (prefers-color-scheme: dark) { body { background: #0f1114; color: #f1f3f5; } }";
const savedGlue = (entry) => 'import { createTraceView } from "' + entry + '";\n' +
  'const data = JSON.parse(document.getElementById("data").textContent);\n' +
  'createTraceView(document.getElementById("page"), { methods: data.methods, rules: data.rules }).update(data.trace);';

/** One self-contained page with this run; `sources` says where the app keeps the view's own files. */
async function savedPage(trace, methods, rules, sources) {
  const [template, styles, { entry, imports }] = await Promise.all([source(sources.template), Promise.all(sources.styles.map(source)), importMap(sources.module)]);
  // The policy shuts the network off for good, whatever the trace holds.
  return ["<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n",
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'unsafe-inline' data:; ",
    "style-src 'unsafe-inline'; img-src data: blob:\">\n",
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n",
    "<title>SpecViz: a saved run</title>\n<style>", SAVED_STYLE, "\n#page {\n", ...styles, "\n}</style>\n</head>\n<body>\n",
    "<h1>SpecViz: a saved run</h1>\n<div id=\"page\">", template, "</div>\n",
    "<script type=\"application/json\" id=\"data\">", asData({ methods, rules, trace }), "</script>\n",
    "<script type=\"importmap\">", asData({ imports }), "</script>\n",
    "<script type=\"module\">", savedGlue(entry), "</script>\n</body>\n</html>\n"].join("");
}

/** `yardstick` is the speed of the verifier alone, if the page knows it. */
export async function savePage(run, value, yardstick, methods, sources) {
  const trace = value + (yardstick ? JSON.stringify(yardstick) + "\n" : "");
  download(fileName(run, ".html"), "text/html", await savedPage(trace, methods, [knownRule(run.rule)].filter(Boolean), sources));
}
