/**
 * Reads a "specviz-trace" (JSON lines) as it grows. Knows lines and entries; draws nothing.
 */

const isToken = (token) => token !== null && typeof token === "object" && typeof token.text === "string";

/** One line of a trace as an object, or null if it cannot be one. */
export function parse(line) {
  try {
    const entry = JSON.parse(line);
    if (entry === null || typeof entry !== "object") return null;
    const sound = entry.type !== "round" || (Array.isArray(entry.tokens) && entry.tokens.every(isToken));
    return sound ? entry : null;
  } catch {
    return null;
  }
}

/** A reader that remembers what it has read: read(value) gives the new entries and whether to start anew. */
export function createReader() {
  let consumed = "";
  return (value) => {
    const anew = !value.startsWith(consumed);
    const start = anew ? 0 : consumed.length;
    const end = value.lastIndexOf("\n") + 1;
    const lines = value.slice(start, Math.max(start, end)).split("\n").filter((line) => line.trim() !== "");
    consumed = value.slice(0, end);
    return { anew, entries: lines.map(parse) };
  };
}
