"""Critical leniences: a rule's tree solved for the lenience `a` at one position, in plain numbers.

A tree can be solved if the test, once passed, stays passed as `a` grows. That is known if the sides are built from `a` by invertible
operations whose direction (rising or falling) follows from the ranges of the quantities. Knows no tensor and no method.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial, reduce
from operator import itemgetter
from typing import Any, TypeAlias

from specviz.core.expression.syntax import Node, compared
from specviz.core.expression.tensors import NUMBERS, apply

Range: TypeAlias = tuple[float, float]
Readings: TypeAlias = Mapping[Any, Any]
"""The numbers that rules read at one position, by `Node.key`."""
Value: TypeAlias = Callable[[Readings], float]
Bound: TypeAlias = Callable[[Readings, float], float]
"""(readings, level) -> the smallest `a` from which on an expression reaches the level."""
_divide = NUMBERS["/"]


def solve_test(rule: Node, leniences: Range) -> Bound | None:
    """(readings, score) -> the smallest lenience at which the score passes the test: -inf if it passes at all leniences, inf if at none.

    Returns None if the rule cannot be solved within `leniences`.
    """
    sides = compared(rule)
    if sides is None:
        return None
    score, threshold = sides
    if not score.has_lenience:
        return _solved(threshold, leniences, rising=False)
    bound = _solved(_fold("-", threshold, score), leniences, rising=False)
    return None if bound is None else lambda readings, _: bound(readings, 0.0)


def solve_ratio(ratio: Node, leniences: Range) -> Bound | None:
    """(readings, coin) -> the smallest lenience at which coin < ratio.

    Returns None if the ratio cannot be solved within `leniences`, or reads the token's probability at temperature 1.
    """
    if any(node.name == "(v)" and node.of in ("q1", "p1") for node in ratio.walk()):
        return None
    return _solved(ratio, leniences, rising=True)


def _solved(node: Node, leniences: Range, *, rising: bool) -> Bound | None:
    try:
        bound = _Solver(leniences, strict=rising).bound(node, rising)
    except _UnsolvableError:
        return None

    def critical(readings: Readings, level: float) -> float:
        found = bound(readings, level)
        return math.inf if found != found else found  # NaN passes no test

    return critical


class _UnsolvableError(Exception):
    pass


class _Solver:
    """Solves the nodes of one tree for the lenience; if `strict`, a level must be exceeded, not only reached."""

    def __init__(self, leniences: Range, *, strict: bool) -> None:
        self._leniences, self._strict = leniences, strict
        self._range = partial(_range, leniences=leniences)

    def bound(self, node: Node, rising: bool) -> Bound:
        """The `Bound` of a node: the smallest `a` from which on the node is at least the level, or at most the level if not `rising`.

        Raises:
            _UnsolvableError: such an `a` cannot be computed.
        """
        if node.is_linear:
            return self._line(node, _slope(node), rising)
        if node.name in ("min", "max"):
            bounds = [self.bound(part, rising) for part in node.parts]
            join = NUMBERS["min" if (node.name == "max") == rising else "max"]
            return lambda readings, level: reduce(join, [bound(readings, level) for bound in bounds])
        part, grows, undo, least = self._step(node, rising)
        own = self.bound(part, rising == grows)
        beyond = -math.inf if rising else math.inf
        return lambda readings, level: beyond if level < least else own(readings, undo(readings, level))

    def _line(self, node: Node, slope: Node, rising: bool) -> Bound:
        """`bound` of a node that equals start + slope·a."""
        low, high = self._range(slope)
        # A ratio may fall if it is still at least 1, and so above every coin, at the greatest lenience.
        above = rising and self._strict and node.has_lenience
        above = above and self._range(at_lenience(node, self._leniences[1]))[0] >= 1
        if (low < 0 if rising else high > 0) and not above:
            raise _UnsolvableError
        start, step, strict = value_of(at_lenience(node, 0)), value_of(slope), self._strict

        def bound(readings: Readings, level: float) -> float:
            first, by = start(readings), step(readings)
            if first != first:
                return math.nan
            if by > 0 if rising else by < 0:
                return (level - first) / by
            below, beyond = (level, first) if rising else (first, level)
            return -math.inf if above or below < beyond or (below == beyond and not strict) else math.inf

        return bound

    def _step(self, node: Node, rising: bool) -> tuple[Node, bool, Bound, float]:
        """Return the part with the lenience, whether the node grows with this part, the inverse function, and a lower bound of the node."""
        name, left, right = node.name, node.parts[0], node.parts[-1]
        if name == "negative":
            return left, False, lambda _, level: -level, -math.inf
        if name == "exp":
            return left, True, lambda _, level: NUMBERS["log"](max(level, 0.0)), -math.inf
        if name == "sqrt" and self._range(left)[0] >= 0:
            return left, True, lambda _, level: level * level, 0.0
        if name == "log" and self._range(left)[0] >= 0:
            return left, True, lambda _, level: NUMBERS["exp"](level), -math.inf
        if name == "*" and left == right and self._range(left)[0] >= 0:
            return left, True, lambda _, level: math.sqrt(level), 0.0
        if len(node.parts) == 1 or left.has_lenience == right.has_lenience:
            raise _UnsolvableError
        first = left.has_lenience
        part, other = (left, right) if first else (right, left)
        value, (low, high) = value_of(other), self._range(other)
        if name == "+":
            return part, True, lambda readings, level: level - value(readings), -math.inf
        if name == "-" and first:
            return part, True, lambda readings, level: level + value(readings), -math.inf
        if name == "-":
            return part, False, lambda readings, level: value(readings) - level, -math.inf
        if name == "/" and not first:
            if low < 0 or self._range(part)[0] <= 0:
                raise _UnsolvableError
            return part, False, lambda readings, level: _divide(value(readings), level), 0.0
        if low < 0 < high:
            raise _UnsolvableError
        if name == "/":
            return part, low >= 0, lambda readings, level: level * value(readings), -math.inf
        # A factor of 0 gives 0 at any lenience: the level 0 is reached, but not exceeded.
        grows = low >= 0
        any_level = -math.inf if (rising == grows) != self._strict else math.inf

        def divided(readings: Readings, level: float) -> float:
            factor = value(readings)
            return any_level if factor == level == 0 else _divide(level, factor)

        return part, grows, divided, -math.inf


# ---- trees


def value_of(node: Node) -> Value:
    """Compile a tree without a lenience to a function: readings -> number."""
    if node.name == "number":
        return lambda _: node.value
    if not node.parts:
        return itemgetter(node.key)
    parts, operation = [value_of(part) for part in node.parts], NUMBERS[node.name]
    if len(parts) > 2:
        operation = partial(apply, node.name)
    return lambda readings: operation(*[part(readings) for part in parts])


def _number(value: float) -> Node:
    return Node("number", 0, value=value)


def _fold(name: str, *parts: Node) -> Node:
    """The node that applies an operator or function to `parts`, simplified."""
    if all(part.name == "number" for part in parts):
        return _number(apply(name, *(part.value for part in parts)))
    first, last = parts[0], parts[-1]
    if name == "*" and _number(0) in parts:
        return _number(0)
    if (name == "+" and first == _number(0)) or (name == "*" and first == _number(1)):
        return last
    if (name in ("+", "-") and last == _number(0)) or (name in ("*", "/") and last == _number(1)):
        return first
    if name == "/" and first == last:
        return _number(1)
    return Node(name, 0, parts)


def at_lenience(node: Node, lenience: float) -> Node:
    """The tree with the number `lenience` in place of `a`, simplified."""
    if node.name == "a":
        return _number(lenience)
    if not node.has_lenience:
        return node
    return _fold(node.name, *(at_lenience(part, lenience) for part in node.parts))


def _slope(node: Node) -> Node:
    """The slope, as a tree, of a node that is linear in the lenience."""
    if node.name == "a" or not node.has_lenience:
        return _number(node.name == "a")
    left, right = node.parts[0], node.parts[-1]
    if node.name in ("+", "-", "negative"):
        return _fold(node.name, *map(_slope, node.parts))
    if right.has_lenience:
        return _fold("*", left, _slope(right))
    return _fold(node.name, _slope(left), right)


_RANGES = {
    "(v)": (0.0, 1.0),
    "max": (5e-324, 1.0),  # some token has a probability above 0
    "top": (0.0, 1.0),
    "TV": (0.0, 1.0),
    "JS": (0.0, math.log(2)),
    "H": (0.0, math.inf),
}


def _range(node: Node, leniences: Range) -> Range:
    """The least and the greatest value that a node can have at these leniences."""
    if node.name in ("number", "a"):
        return (node.value, node.value) if node.name == "number" else leniences
    if not node.parts:
        return _RANGES[node.name]
    ranges = [_range(part, leniences) for part in node.parts]
    (low, high), (other_low, other_high) = ranges[0], ranges[-1]
    if node.name == "negative":
        return -high, -low
    if node.name == "-":
        return low - other_high, high - other_low
    if node.name == "*":
        ends = [x * y if x and y else 0.0 for x in ranges[0] for y in ranges[1]]
        return min(ends), max(ends)
    if node.name == "/":
        return (0.0 if min(low, other_low) >= 0 else -math.inf), math.inf
    if node.name in ("sqrt", "log"):
        ranges = [(max(low, 0), max(high, 0))]
    low, high = (apply(node.name, *ends) for ends in zip(*ranges, strict=True))
    return (low, high) if low <= high else (-math.inf, math.inf)
