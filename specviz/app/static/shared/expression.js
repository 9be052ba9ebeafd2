/**
 * Evaluates a rule's tree. The server parses rules and sends trees: {name, of, value, parts}, as in
 * specviz/core/expression/syntax.py. Knows nothing of methods or the page.
 */

const ROUNDING = 1e-12; // people set round numbers, and 1 − 0.7 should count as 0.3

const total = (values) => values.reduce((sum, value) => sum + value, 0);
const entropy = (values) => -total(values.map((value) => (value > 0 ? value * Math.log(value) : 0)));
const least = (x, y) => (Number.isNaN(x) || Number.isNaN(y) ? NaN : Math.min(x, y));

/** What a distribution, or both together, say of a position. */
function quantity({ name, of, value }, b) {
  if (name === "TV") return total(b.q.map((mass, word) => Math.max(0, mass - b.p[word])));
  if (name === "JS") {
    const middle = b.q1.map((mass, word) => (mass + b.p1[word]) / 2);
    return Math.max(0, entropy(middle) - (entropy(b.q1) + entropy(b.p1)) / 2);
  }
  if (name === "max") return Math.max(...b[of]);
  if (name === "H") return entropy(b[of]);
  return [...b[of]].sort((x, y) => y - x)[Math.min(value, b[of].length) - 1];
}

const OPERATIONS = {
  "+": (x, y) => x + y, "-": (x, y) => x - y, "*": (x, y) => x * y, "/": (x, y) => x / y,
  negative: (x) => -x, sqrt: Math.sqrt, log: Math.log, exp: Math.exp, min: least, max: (x, y) => -least(-x, -y),
  ">=": (x, y) => x >= y - ROUNDING, ">": (x, y) => x > y + ROUNDING, "<=": (x, y) => x <= y + ROUNDING, "<": (x, y) => x < y - ROUNDING,
  and: (x, y) => x && y, or: (x, y) => x || y, not: (x) => !x,
};

/** The number or the truth of a tree for one word of both models' distributions {q, p, q1, p1} at a lenience. */
export function evaluate(tree, b, a, word) {
  if (tree.name === "number") return tree.value;
  if (tree.name === "a") return a;
  if (tree.name === "(v)") return b[tree.of][word];
  if (!tree.parts) return quantity(tree, b);
  const values = tree.parts.map((part) => evaluate(part, b, a, word));
  const operation = OPERATIONS[tree.name];
  return values.length === 1 ? operation(values[0]) : values.reduce((x, y) => operation(x, y));
}
