/**
 * The language of rules, as specviz/core/expression has it: parse(text) -> tree, evaluate(tree, b, a, word) -> number or boolean,
 * typeset(tree) -> text, sides(tree). A text that is no rule throws RuleError, with a sentence and the place. Nothing is ever
 * evaluated as a script. Knows no method and no page.
 */

const MAX_CHARACTERS = 300;
const MAX_DEPTH = 16;
const MAX_WORK = 48;
const MAX_NUMBER = 1e6;
const MAX_TOP = 100;
const ROUNDING = 1e-12; // people set round numbers, and 1 − 0.7 should count as 0.3

const DISTRIBUTIONS = ["q", "p", "q1", "p1"];
const COMPARISONS = [">=", ">", "<=", "<"];
const FUNCTIONS = { min: [2, 8], max: [2, 8], sqrt: [1, 1], log: [1, 1], exp: [1, 1] };
const KNOWN = "q(v), p(v), q1(v), p1(v), max, H and top of q, p, q1, p1, TV, JS, a, min, max, sqrt, log and exp";
const COSTS = { max: 1, top: 4, H: 8, TV: 2, JS: 24 };
const SLOW = { exp: 6, log: 6, sqrt: 2, "/": 2 };
const PLAIN = { "α": "a", "−": "-", "–": "-", "·": "*", "×": "*", "₁": "1" };
const WORD = /[ \t\r\n]*(?:([0-9]+[.]?[0-9]*(?:[eE][+-]?[0-9]+)?|[.][0-9]+)|([A-Za-z][A-Za-z0-9]*)|(>=|<=|[-+*/(),<>≥≤]))/y;
export const [SETTING, WHOLE, TOKEN] = [0, 1, 2]; // of what there is one: of a setting, of a position, of each token

export class RuleError extends Error {
  constructor(sentence, position) {
    super(sentence);
    this.position = position;
  }
}

const isTruth = (node) => [...COMPARISONS, "and", "or", "not"].includes(node.name);
const node = (name, position, parts = [], more = {}) => {
  const own = name === "number" || name === "a" ? SETTING : name === "(v)" ? TOKEN : WHOLE;
  return { name, position, parts, of: "", value: 0, ...more, level: parts.length ? Math.max(...parts.map((part) => part.level)) : own };
};
const isQuantity = (part) => part.parts.length === 0 && part.level > SETTING;
const all = (tree) => [...tree.parts.flatMap(all), tree];

function work(tree) {
  const quantities = new Map(all(tree).filter(isQuantity).map((each) => [each.name + " " + each.of + " " + each.value, each.name]));
  const own = [...quantities.values()].reduce((sum, name) => sum + (COSTS[name] ?? 0), 0);
  return all(tree).filter((each) => each.parts.length && each.level === TOKEN)
    .reduce((sum, each) => sum + (SLOW[each.name] ?? 1) * Math.max(1, each.parts.length - 1), own);
}

const trees = new Map();

/** The tree of a rule. */
export function parse(text) {
  if (!trees.has(text)) {
    if (trees.size > 200) trees.clear();
    trees.set(text, read(text));
  }
  return trees.get(text);
}

function read(text) {
  if (!text.trim()) throw new RuleError("A rule is empty: write a comparison such as p1(v) >= (1 - a) * max p1.", 0);
  const length = [...text].length;
  if (length > MAX_CHARACTERS) {
    throw new RuleError("A rule may have " + MAX_CHARACTERS + " characters; this one has " + length + ".", MAX_CHARACTERS);
  }
  const tree = parseNumber(text);
  if (!isTruth(tree)) throw new RuleError("A rule says when a token is trusted: it must be a comparison, such as p1(v) >= 0.1.", tree.position);
  if (work(tree) > MAX_WORK) {
    throw new RuleError("This rule computes too much: " + work(tree) + " passes over the vocabulary, where " + MAX_WORK + " may be.", tree.position);
  }
  return tree;
}

function split(text) {
  const plain = [...text].map((each) => PLAIN[each] ?? each).join("");
  const end = plain.replace(/[ \t\r\n]+$/, "").length;
  const place = (index) => [...plain.slice(0, index)].length; // an emoji is one character
  const words = [];
  let at = 0;
  while (at < end) {
    WORD.lastIndex = at;
    const found = WORD.exec(plain);
    if (!found) throw new RuleError("A rule has no such character.", place(at + plain.slice(at).search(/[^ \t\r\n]/)));
    const kind = found[1] !== undefined ? "number" : found[2] !== undefined ? "name" : "sign";
    const word = found[1] ?? found[2] ?? found[3];
    at = WORD.lastIndex;
    words.push({ kind, word: { "≥": ">=", "≤": "<=" }[word] ?? word, position: place(at - word.length) });
  }
  return [...words, { kind: "end", word: "", position: place(end) }];
}

/** The tree of a text of any kind. */
export function parseNumber(text) {
  const words = split(text);
  let next = 0;
  let depth = 0;
  const now = () => words[next];
  const fail = (sentence, position = now().position) => {
    throw new RuleError(sentence, position);
  };
  const take = (...wanted) => {
    const found = (now().kind === "name" || now().kind === "sign") && wanted.includes(now().word);
    if (found) next += 1;
    return found;
  };
  const need = (word, sentence) => take(word) || fail(sentence);
  const nested = (readOne) => {
    depth += 1;
    if (depth > MAX_DEPTH) fail("This nests too deep: " + MAX_DEPTH + " levels may be.");
    const found = readOne();
    depth -= 1;
    return found;
  };
  const truth = (each, word) => (isTruth(each) ? each : fail("“" + word + "” joins comparisons; this is a number.", each.position));
  const number = (each) => (isTruth(each) ? fail("A number is wanted here; this is a comparison.", each.position) : each);

  const any = () => joined("or", () => joined("and", negation));
  function joined(word, readOne) {
    let left = readOne();
    while (now().kind === "name" && now().word === word) {
      const { position } = words[next++];
      left = truth(left, word);
      left = node(word, position, [left, truth(readOne(), word)]);
    }
    return left;
  }
  function negation() {
    const { position } = now();
    return take("not") ? node("not", position, [truth(nested(negation), "not")]) : comparison();
  }
  function comparison() {
    const left = sum();
    const { position, word } = now();
    if (!take(...COMPARISONS)) return left;
    number(left);
    const found = node(word, position, [left, number(sum())]);
    if (now().kind === "sign" && COMPARISONS.includes(now().word)) fail("Compare two numbers at a time, and join comparisons with “and”.");
    return found;
  }
  const sum = () => chain(["+", "-"], () => chain(["*", "/"], factor));
  function chain(signs, readOne) {
    let left = readOne();
    while (now().kind === "sign" && signs.includes(now().word)) {
      const { position, word } = words[next++];
      number(left);
      left = node(word, position, [left, number(readOne())]);
    }
    return left;
  }
  function factor() {
    const { position } = now();
    return take("-") ? node("negative", position, [number(nested(factor))]) : atom();
  }
  function atom() {
    const { kind, word, position } = now();
    if (kind === "end") fail("The rule ends too early: a number or a name is missing here.");
    if (take("(")) {
      const found = nested(any);
      need(")", "A closing parenthesis is missing here.");
      return found;
    }
    if (kind === "sign") fail("A number or a name is missing here.");
    next += 1;
    if (kind === "number") {
      if (Number(word) > MAX_NUMBER) fail("This number is too large: up to 1,000,000 may be.", position);
      return node("number", position, [], { value: Number(word) });
    }
    if (["a", "TV", "JS"].includes(word)) return node(word, position);
    if (DISTRIBUTIONS.includes(word)) return probability(word, position);
    if (word === "max" && DISTRIBUTIONS.includes(now().word)) return node("max", position, [], { of: whose() });
    if (word === "H" || word === "top") return ofDistribution(word, position);
    if (Object.hasOwn(FUNCTIONS, word)) return call(word, position);
    return fail("There is no such name; there are " + KNOWN + ".", position);
  }
  function probability(name, position) {
    const sentence = "Write " + name + "(v) for the draft token's probability, or max " + name + " for the largest one.";
    for (const word of ["(", "v", ")"]) need(word, sentence);
    return node("(v)", position, [], { of: name });
  }
  function whose() {
    const { word } = now();
    return take(...DISTRIBUTIONS) ? word : fail("Here a distribution must be named: " + DISTRIBUTIONS.join(", ") + ".");
  }
  function ofDistribution(name, position) {
    const sentence = name + " is written " + (name === "H" ? "H(p1)" : "top(10, p1)") + ".";
    need("(", sentence);
    let value = 0;
    if (name === "top") {
      value = now().kind === "number" ? Number(now().word) : 0;
      if (!Number.isInteger(value) || value < 1 || value > MAX_TOP) fail("top takes a whole number from 1 to " + MAX_TOP + " first.");
      next += 1;
      need(",", sentence);
    }
    const of = whose();
    need(")", sentence);
    return node(name, position, [], { of, value });
  }
  function call(name, position) {
    need("(", "After " + name + " comes a parenthesis: " + name + "(…).");
    const parts = [number(nested(any))];
    while (take(",")) parts.push(number(nested(any)));
    const [least, most] = FUNCTIONS[name];
    if (parts.length < least || parts.length > most) {
      const numbers = least === most ? least + " number" : least + " to " + most + " numbers";
      fail(name + " takes " + numbers + "; here are " + parts.length + ".", position);
    }
    need(")", "A comma or a closing parenthesis is missing here.");
    return node(name, position, parts);
  }

  const tree = any();
  if (now().kind !== "end") fail("Here something is missing between two parts: an operator, or “and”.");
  return tree;
}

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

/** What a tree comes to for one word of both models' distributions {q, p, q1, p1} at a lenience. */
export function evaluate(tree, b, a, word) {
  if (tree.name === "number") return tree.value;
  if (tree.name === "a") return a;
  if (tree.name === "(v)") return b[tree.of][word];
  if (isQuantity(tree)) return quantity(tree, b);
  const values = tree.parts.map((part) => evaluate(part, b, a, word));
  const operation = OPERATIONS[tree.name];
  return values.length === 1 ? operation(values[0]) : values.reduce((x, y) => operation(x, y));
}

/** The greater and the lesser side of a rule that is one comparison with a number of the whole position; null otherwise. */
export function sides(tree) {
  if (tree.name !== ">=" && tree.name !== "<=") return null;
  const [greater, lesser] = tree.name === ">=" ? tree.parts : [...tree.parts].reverse();
  return (greater.level < TOKEN || isQuantity(greater)) && lesser.level < TOKEN ? [greater, lesser] : null;
}

const BINDING = { or: 1, and: 2, not: 3, ">=": 4, ">": 4, "<=": 4, "<": 4, "+": 5, "-": 5, "*": 6, "/": 6, negative: 7 };
const SIGNS = { ">=": " ≥ ", "<=": " ≤ ", ">": " > ", "<": " < ", "+": " + ", "-": " − ", "*": "·", "/": " / ", and: " and ", or: " or " };

/** A tree as it is shown: p₁(v) ≥ (1 − α)·max p₁. */
export function typeset(tree) {
  const { name } = tree;
  if (name === "number") return String(Number(tree.value.toPrecision(6)));
  if (["a", "TV", "JS"].includes(name)) return { a: "α", TV: "TV(q, p)", JS: "JS(q₁, p₁)" }[name];
  if (tree.of) {
    const of = tree.of.replace("1", "₁");
    return { "(v)": of + "(v)", max: "max " + of, H: "H(" + of + ")", top: "top(" + tree.value + ", " + of + ")" }[name];
  }
  if (Object.hasOwn(FUNCTIONS, name)) return name + "(" + tree.parts.map(typeset).join(", ") + ")";
  const within = (part, binding) => ((BINDING[part.name] ?? 9) < binding ? "(" + typeset(part) + ")" : typeset(part));
  const binding = BINDING[name];
  if (tree.parts.length === 1) return (name === "not" ? "not " : "−") + within(tree.parts[0], binding);
  return within(tree.parts[0], binding) + SIGNS[name] + within(tree.parts[1], binding + (name === "-" || name === "/" ? 1 : 0));
}

/** A method's words with a rule of one's own put in; as they are without one, and where it is no rule. */
export function withRule(method, rule) {
  if (typeof rule !== "string" || !rule) return method;
  try {
    const tree = parse(rule);
    const both = sides(tree)?.map(typeset) ?? [typeset(tree), null];
    return { ...method, expression: rule, formula: typeset(tree), score_label: both[0], threshold_label: both[1] };
  } catch (error) {
    if (error instanceof RuleError) return method;
    throw error;
  }
}
