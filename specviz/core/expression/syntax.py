"""The language of rules and its syntax tree, read by a small parser that accepts only the names it knows.

A rule is about one position. `q(v)` and `p(v)` are the draft token's probabilities under drafter and verifier; `max q`, `H(q)` and
`top(k, q)` are a distribution's largest probability, entropy in nats and k-th largest probability; `q1` and `p1` are the
distributions at temperature 1. `TV` is the total variation of q and p; `JS` is the Jensen-Shannon divergence of q1 and p1 in nats; `a` is
the lenience. + - * / and min max sqrt log exp combine numbers. Comparisons of numbers are true or false; `and`, `or`, `not` combine them.

Knows no tensor: `tensors` compiles trees. The page gets trees as data, and `static/shared/expression.js` evaluates them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Any, NamedTuple

from specviz.errors import RuleError

MAX_CHARACTERS = 300
MAX_DEPTH = 16
"""How deep parentheses, functions, `not` and signs may nest."""
MAX_WORK = 48
"""The greatest `Node.work` of a rule: about the number of passes over the vocabulary."""
MAX_NUMBER = 1e6
MAX_TOP = 100

DISTRIBUTIONS = ("q", "p", "q1", "p1")
SUMS, PRODUCTS = ("+", "-"), ("*", "/")
COMPARISONS = (">=", ">", "<=", "<")
FUNCTIONS = {"min": (2, 8), "max": (2, 8), "sqrt": (1, 1), "log": (1, 1), "exp": (1, 1)}
"""Each function, with the least and the greatest number of its arguments."""
_KNOWN = "q(v), p(v), q1(v), p1(v), max, H and top of q, p, q1, p1, TV, JS, a, min, max, sqrt, log and exp"
_COSTS = {"max": 1, "top": 4, "H": 8, "TV": 2, "JS": 24}
_SLOW = {"exp": 6, "log": 6, "sqrt": 2, "/": 2}

# One character each, so that positions in the text stay the same.
_PLAIN = str.maketrans({"α": "a", "−": "-", "–": "-", "·": "*", "×": "*", "₁": "1"})
_SPACE = " \t\r\n"
_WORD = re.compile(
    r"(?P<number>[0-9]+[.]?[0-9]*(?:[eE][+-]?[0-9]+)?|[.][0-9]+)|(?P<name>[A-Za-z][A-Za-z0-9]*)|(?P<sign>>=|<=|[-+*/(),<>≥≤])"
    rf"|(?P<space>[{_SPACE}]+)|(?P<other>.)",
    re.DOTALL,
)


class Level(IntEnum):
    """How many values a node has: one for all positions (a setting), one per position, or one per position and token."""

    SETTING = 0
    WHOLE = 1
    TOKEN = 2


@dataclass(frozen=True)
class Node:
    """A node of a rule's tree. Properties that recurse into its parts are cached, so that parsing takes time linear in a rule's length.

    Attributes:
        name: an operator, a function, "number", "a", "TV", "JS", or "(v)", "max", "H", "top" of a distribution.
        position: where in the text its name begins; comparisons of nodes ignore it.
        parts: its operands.
        of: the distribution that its value is read from, if any.
        value: the number of a "number"; the k of a "top".
    """

    name: str
    position: int = field(compare=False)
    parts: tuple[Node, ...] = ()
    of: str = ""
    value: float = 0.0

    @property
    def is_truth(self) -> bool:
        """Whether its value is true or false, not a number."""
        return self.name in (*COMPARISONS, "and", "or", "not")

    @property
    def is_quantity(self) -> bool:
        """Whether its value is read from the distributions, not computed from parts."""
        return not self.parts and self.level > Level.SETTING

    @property
    def key(self) -> tuple[str, str, int]:
        """Identifies the quantity, or the token's probability, that the node stands for."""
        return self.name, self.of, int(self.value)

    @cached_property
    def has_lenience(self) -> bool:
        """Whether it contains the lenience."""
        return self.name == "a" or any(part.has_lenience for part in self.parts)

    @cached_property
    def is_linear(self) -> bool:
        """Whether it is known to be start + slope·a, where start and slope do not depend on the lenience `a`."""
        if self.name == "a" or not self.has_lenience:
            return True
        first, last = self.parts[0], self.parts[-1]
        is_sum = self.name in (*SUMS, "negative")
        is_scaled = (self.name in PRODUCTS and not last.has_lenience) or (
            self.name == "*" and not first.has_lenience
        )
        return (is_sum or is_scaled) and first.is_linear and last.is_linear

    @cached_property
    def level(self) -> Level:
        """How many values it has."""
        if self.name in ("number", "a"):
            return Level.SETTING
        if self.of or self.name in ("TV", "JS"):
            return Level.TOKEN if self.name == "(v)" else Level.WHOLE
        return max(part.level for part in self.parts)

    def as_json(self) -> dict[str, Any]:
        """The tree as data, without empty fields."""
        fields = {"of": self.of, "parts": [part.as_json() for part in self.parts]}
        value = {"value": self.value} if self.name in ("number", "top") else {}
        return {"name": self.name} | value | {name: each for name, each in fields.items() if each}

    def walk(self) -> Iterator[Node]:
        """The node itself, then its parts, recursively."""
        yield self
        for part in self.parts:
            yield from part.walk()

    @property
    def work(self) -> int:
        """Its cost at a position, in passes over the vocabulary. A quantity counts once, however often it occurs."""
        quantities = {each.key for each in self.walk() if each.is_quantity}
        passes = sum(_COSTS.get(name, 0) for name, _, _ in quantities)
        for each in self.walk():
            if each.parts and each.level is Level.TOKEN:
                passes += _SLOW.get(each.name, 1) * max(1, len(each.parts) - 1)
        return passes


def parse(text: str) -> Node:
    """The tree of a rule.

    Raises:
        RuleError: the text is no rule, too long, or takes more than `MAX_WORK`. The error says what is wrong and at which position.
    """
    if not isinstance(text, str) or not text.strip():
        raise RuleError("A rule is empty: write a comparison such as p1(v) >= (1 - a) * max p1.", "", 0)
    if len(text) > MAX_CHARACTERS:
        sentence = f"A rule may have {MAX_CHARACTERS} characters; this one has {len(text)}."
        raise RuleError(sentence, text[:MAX_CHARACTERS], MAX_CHARACTERS)
    rule = _Parser(text).rule()
    if not rule.is_truth:
        sentence = "A rule says when a token is trusted: it must be a comparison, such as p1(v) >= 0.1."
        raise RuleError(sentence, text, rule.position)
    if rule.work > MAX_WORK:
        sentence = (
            f"This rule computes too much: {rule.work} passes over the vocabulary, where {MAX_WORK} may be."
        )
        raise RuleError(sentence, text, rule.position)
    return rule


def parse_number(text: str) -> Node:
    """The tree of a numeric expression, such as `Method.ratio`, of any length and work; RuleError if the text is no such expression."""
    node = _Parser(text).rule()
    if node.is_truth:
        raise RuleError("A number is wanted here, not a comparison.", text, node.position)
    return node


def compared(rule: Node) -> tuple[Node, Node] | None:
    """The greater and the lesser side of a rule that is one `>=` or `<=`; None otherwise, or if a "(v)" is not the whole greater side."""
    if rule.name not in (">=", "<="):
        return None
    greater, lesser = rule.parts if rule.name == ">=" else rule.parts[::-1]
    plain = greater.level < Level.TOKEN or greater.is_quantity
    return (greater, lesser) if plain and lesser.level < Level.TOKEN else None


_OPERATORS = {
    "or": (1, " or "),
    "and": (2, " and "),
    "not": (3, "not "),
    ">=": (4, " ≥ "),
    "<=": (4, " ≤ "),
    ">": (4, " > "),
    "<": (4, " < "),
    "+": (5, " + "),
    "-": (5, " − "),
    "*": (6, "·"),
    "/": (6, " / "),
    "negative": (7, "−"),
}
"""How tightly each operator binds, and its sign when typeset."""
_PREFIXES = {"not": "not", "-": "negative"}
_INFIXES = {name: binding for name, (binding, _) in _OPERATORS.items() if name not in _PREFIXES.values()}


class _Word(NamedTuple):
    """A word of a text: its kind is "number", "name", "sign" or "end"."""

    kind: str
    text: str
    position: int


class _Parser:
    """Parses one text, once, by precedence climbing."""

    def __init__(self, text: str) -> None:
        self._text, self._depth = text, 0
        self._words = iter(self._split(text.translate(_PLAIN)))
        self._now = next(self._words)

    def _split(self, text: str) -> list[_Word]:
        """The words of the text, then a word of the kind "end"."""
        words = []
        for found in _WORD.finditer(text):
            kind, word, position = str(found.lastgroup), found[0], found.start()
            if kind == "other":
                raise self._error("A rule has no such character.", position)
            if kind != "space":
                words.append(_Word(kind, {"≥": ">=", "≤": "<="}.get(word, word), position))
        return [*words, _Word("end", "", len(text.rstrip(_SPACE)))]

    def rule(self) -> Node:
        node = self._expression(1)
        if self._now.kind != "end":
            raise self._error("Here something is missing between two parts: an operator, or “and”.")
        return node

    # ---- words

    def _read(self) -> _Word:
        read = self._now
        self._now = next(self._words, read)
        return read

    def _take(self, word: str) -> bool:
        """Read the next word if it is `word`; returns whether it was."""
        found = self._now.text == word
        if found:
            self._read()
        return found

    def _need(self, word: str, sentence: str) -> None:
        if not self._take(word):
            raise self._error(sentence)

    def _error(self, sentence: str, position: int | None = None) -> RuleError:
        return RuleError(sentence, self._text, self._now.position if position is None else position)

    # ---- grammar

    def _expression(self, least: int) -> Node:
        """Read the longest expression whose operators bind at least as tightly as `least`."""
        prefix = _PREFIXES.get(self._now.text)
        if prefix and (binding := _OPERATORS[prefix][0]) >= least:
            position = self._read().position
            left = Node(prefix, position, (self._operand(self._nested(binding), prefix),))
        else:
            left = self._atom()
        while (binding := _INFIXES.get(self._now.text, 0)) >= least:
            _, name, position = self._read()
            parts = self._operand(left, name), self._operand(self._expression(binding + 1), name)
            left = Node(name, position, parts)
            if name in COMPARISONS and self._now.text in COMPARISONS:
                raise self._error("Compare two numbers at a time, and join comparisons with “and”.")
        return left

    def _nested(self, least: int = 1) -> Node:
        """Read an `_expression` one nesting level deeper."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error(f"This nests too deep: {MAX_DEPTH} levels may be.")
        node = self._expression(least)
        self._depth -= 1
        return node

    def _operand(self, node: Node, operator: str) -> Node:
        """Return `node`. RuleError if `node` is a number and `operator` takes truths (`and`, `or`, `not`), or the other way round."""
        wants_truth = operator in ("and", "or", "not")
        if wants_truth and not node.is_truth:
            raise self._error(f"“{operator}” joins comparisons; this is a number.", node.position)
        if node.is_truth and not wants_truth:
            raise self._error("A number is wanted here; this is a comparison.", node.position)
        return node

    def _atom(self) -> Node:
        kind, word, position = self._now
        if kind == "end":
            raise self._error("The rule ends too early: a number or a name is missing here.")
        if self._take("("):
            node = self._nested()
            self._need(")", "A closing parenthesis is missing here.")
            return node
        if kind == "sign":
            raise self._error("A number or a name is missing here.")
        self._read()
        if kind == "number":
            if float(word) > MAX_NUMBER:
                raise self._error(f"This number is too large: up to {MAX_NUMBER:,.0f} may be.", position)
            return Node("number", position, value=float(word))
        if word in ("a", "TV", "JS"):
            return Node(word, position)
        if word in DISTRIBUTIONS:
            sentence = (
                f"Write {word}(v) for the draft token's probability, or max {word} for the largest one."
            )
            for part in "(v)":
                self._need(part, sentence)
            return Node("(v)", position, of=word)
        if word == "max" and self._now.text in DISTRIBUTIONS:
            return Node("max", position, of=self._read().text)
        if word in ("H", "top"):
            return self._of_distribution(word, position)
        if word in FUNCTIONS:
            return self._function(word, position)
        raise self._error(f"There is no such name; there are {_KNOWN}.", position)

    def _of_distribution(self, name: str, position: int) -> Node:
        sentence, count = f"{name} is written {'H(p1)' if name == 'H' else 'top(10, p1)'}.", 0.0
        self._need("(", sentence)
        if name == "top":
            count = float(self._now.text) if self._now.kind == "number" else 0.0
            if not (count.is_integer() and 1 <= count <= MAX_TOP):
                raise self._error(f"top takes a whole number from 1 to {MAX_TOP} first.")
            self._read()
            self._need(",", sentence)
        if self._now.text not in DISTRIBUTIONS:
            raise self._error(f"Here a distribution must be named: {', '.join(DISTRIBUTIONS)}.")
        found = self._read().text
        self._need(")", sentence)
        return Node(name, position, of=found, value=count)

    def _function(self, name: str, position: int) -> Node:
        self._need("(", f"After {name} comes a parenthesis: {name}(…).")
        parts = [self._operand(self._nested(), name)]
        while self._take(","):
            parts.append(self._operand(self._nested(), name))
        least, most = FUNCTIONS[name]
        if not least <= len(parts) <= most:
            numbers = f"{least} number" if least == most else f"{least} to {most} numbers"
            raise self._error(f"{name} takes {numbers}; here are {len(parts)}.", position)
        self._need(")", "A comma or a closing parenthesis is missing here.")
        return Node(name, position, tuple(parts))


# ---- typeset

_QUANTITIES = {"a": "α", "TV": "TV(q, p)", "JS": "JS(q₁, p₁)", "(v)": "{}(v)", "max": "max {}", "H": "H({})"}


def typeset(node: Node) -> str:
    """A tree as it is shown: `p₁(v) ≥ (1 − α)·max p₁`, with as few parentheses as possible."""
    name, of = node.name, node.of.replace("1", "₁")
    if name == "number":
        return f"{node.value:.0f}" if node.value.is_integer() else f"{node.value!r}"
    if name == "top":
        return f"top({node.value:g}, {of})"
    if not node.parts:
        return _QUANTITIES[name].format(of)
    if name in FUNCTIONS:
        return f"{name}({', '.join(map(typeset, node.parts))})"
    binding, sign = _OPERATORS[name]
    *left, right = node.parts  # right of − and /, operators that bind equally need parentheses
    before = [_within(part, binding) for part in left]
    return "".join(before) + sign + _within(right, binding + (name in ("-", "/")))


def _within(node: Node, binding: int) -> str:
    own, _ = _OPERATORS.get(node.name, (9, ""))
    return f"({typeset(node)})" if own < binding else typeset(node)
