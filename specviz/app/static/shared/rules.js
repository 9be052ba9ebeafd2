/**
 * Custom rules, as the server parses them: {expression, formula, score_label, threshold_label, tree}, or for an invalid text
 * {expression, sentence, position}. Results are cached.
 */

const MOST = 200;
const read = new Map(); // by text

/** Keep rules that came with a page. */
export function keepRules(rules) {
  for (const rule of rules) read.set(rule.expression, rule);
}

/** A rule as it was read; undefined before. */
export const knownRule = (text) => read.get(text);

/** Have the server read a rule; undefined where nobody answers. */
export async function readRule(text) {
  if (read.has(text)) return read.get(text);
  if (!location.protocol.startsWith("http")) return undefined; // a saved page asks nobody
  try {
    const answer = await fetch(new URL("rule?text=" + encodeURIComponent(text), document.baseURI));
    if (!answer.ok) return undefined;
    const rule = { ...await answer.json(), expression: text };
    if (read.size > MOST) read.clear();
    read.set(text, rule);
    return rule;
  } catch {
    return undefined;
  }
}

/** A method's words with a rule of one's own in them; as it was written where it is not read yet. */
export function withRule(method, text) {
  if (typeof text !== "string" || !text) return method;
  const rule = read.get(text);
  return rule?.tree ? { ...method, ...rule } : { ...method, expression: text, formula: text, score_label: text, threshold_label: null };
}
