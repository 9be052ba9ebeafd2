/**
 * Reads growing JSON lines: each update reads only the new ones. Knows lines and entries; draws nothing.
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

/**
 * A reader of a value that grows: read(value) gives the entries of new lines, and whether to start anew because this is another
 * value. The same value begins with the same first line, and has the line that was read last in the same place: rounds have
 * times, so two runs do not share it.
 */
export function createReader() {
  let first = "";
  let last = "";
  let next = 0; // where the first unread line begins
  return (value) => {
    const anew = !(value.startsWith(first) && value.startsWith(last, next - last.length));
    if (anew) [first, last, next] = ["", "", 0];
    const entries = [];
    for (let end = value.indexOf("\n", next); end >= 0; end = value.indexOf("\n", next)) {
      last = value.slice(next, end + 1);
      first ||= last;
      next = end + 1;
      if (last.trim() !== "") entries.push(parse(last));
    }
    return { anew, entries };
  };
}
