"""Critical leniences: a rule's tree solved for the lenience `a`.

A tree is solved where the test, once passed, stays passed as `a` grows: where the sides are made of `a` by steps that can be undone
and whose direction is known from the ranges of the quantities. Knows no method.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias

import torch
from torch import Tensor

from specviz.core.distributions import Distributions
from specviz.core.expression.syntax import Node, compared
from specviz.core.expression.tensors import Value, apply, compile_value

Range: TypeAlias = tuple[float, float]
Bound: TypeAlias = "Callable[[_Position, Tensor], Tensor]"
"""(position, level [..., 1]) -> the smallest `a` [..., 1] from which on a part reaches the level."""
Undo: TypeAlias = "Callable[[_Position, Tensor], Tensor]"
"""(position, level of a whole) -> level of its part."""


def solve_test(rule: Node, leniences: Range) -> Callable[[Distributions, Tensor], Tensor] | None:
    """The function (distributions, score float64 [...]) -> critical lenience [...]: the smallest one at which that score passes the test.

    It is -inf where every lenience passes, inf where none does. None where the rule cannot be solved within `leniences`.
    """
    sides = compared(rule)
    if sides is None:
        return None
    score, threshold = sides
    scored = not score.has_lenience
    try:
        bound = _Solver(leniences, strict=False).bound(
            threshold if scored else _fold("-", threshold, score), rising=False
        )
    except _UnsolvableError:
        return None

    def critical(b: Distributions, value: Tensor) -> Tensor:
        level = value.unsqueeze(-1) if scored else torch.zeros_like(value).unsqueeze(-1)
        # A threshold reads no single token: what stands for q(v) and p(v) is not read.
        return _finished(bound(_Position(b, level, level), level), level)

    return critical


def solve_ratio(
    ratio: Node, leniences: Range
) -> Callable[[Distributions, Tensor, Tensor, Tensor], Tensor] | None:
    """The function (distributions, q(v), p(v), coin, float64 [...] each) -> the smallest lenience [...] at which coin < ratio.

    None where the ratio cannot be solved within `leniences`, or reads the token's probability at temperature 1.
    """
    if any(node.name == "(v)" and node.of in ("q1", "p1") for node in ratio.walk()):
        return None
    try:
        bound = _Solver(leniences, strict=True).bound(ratio, rising=True)
    except _UnsolvableError:
        return None

    def critical(b: Distributions, q: Tensor, p: Tensor, coin: Tensor) -> Tensor:
        level = coin.unsqueeze(-1)
        return _finished(bound(_Position(b, q.unsqueeze(-1), p.unsqueeze(-1)), level), level)

    return critical


def _finished(bound: Tensor, level: Tensor) -> Tensor:
    """[...], with infinity for what is not a number: it passes no test."""
    return torch.nan_to_num(bound + 0.0, math.inf, math.inf, -math.inf).expand_as(level).squeeze(-1)


@dataclass(frozen=True)
class _Position:
    """What a tree reads, in float64: quantities, and q(v) and p(v) of the draft token alone, [..., 1] each."""

    distributions: Distributions
    q: Tensor
    p: Tensor

    def quantity(self, name: str, of: str, count: int) -> Tensor:
        return self.distributions.quantity(name, of, count).double()


class _UnsolvableError(Exception):
    pass


class _Solver:
    """Solves parts of one tree; `strict` where a level must be exceeded."""

    def __init__(self, leniences: Range, *, strict: bool) -> None:
        self._leniences, self._strict = leniences, strict

    def bound(self, node: Node, *, rising: bool) -> Bound:
        """From which `a` on a part is at least the level (`rising`), or at most.

        Raises:
            _UnsolvableError: no such lenience is known.
        """
        if not node.has_lenience:
            return self._constant(node, rising)
        if (slope := _slope(node)) is not None:
            return self._line(node, slope, rising)
        if node.name in ("min", "max"):
            bounds = [self.bound(part, rising=rising) for part in node.parts]
            join = torch.minimum if (node.name == "max") == rising else torch.maximum
            return lambda at, level: reduce(join, [each(at, level) for each in bounds])
        part, grows, undo, least = self._step(node, rising)
        own = self.bound(part, rising=rising == grows)
        beyond = -math.inf if rising else math.inf
        return lambda at, level: torch.where(level < least, beyond, own(at, undo(at, level)))

    def _reaches(self, value: Value, level: Tensor, rising: bool) -> Tensor:
        low, high = (level, value) if rising else (value, level)
        return low < high if self._strict else low <= high

    def _constant(self, node: Node, rising: bool) -> Bound:
        value = _value(node)

        def bound(at: _Position, level: Tensor) -> Tensor:
            own = value(at) + torch.zeros_like(level)
            reached = torch.where(self._reaches(own, level, rising), -math.inf, math.inf)
            return torch.where(own.isnan(), math.nan, reached)

        return bound

    def _line(self, node: Node, slope: Node, rising: bool) -> Bound:
        """Of start + slope·a."""
        low, high = self._range(slope)
        # Where a ratio falls, it must not fall below the coin, which is below 1.
        above = rising and self._strict and self._range(at_lenience(node, self._leniences[1]))[0] >= 1
        if (low < 0 if rising else high > 0) and not above:
            raise _UnsolvableError
        start, step = _value(at_lenience(node, 0)), _value(slope)
        if low > 0 if rising else high < 0:
            return lambda at, level: (level - start(at)) / step(at)

        def bound(at: _Position, level: Tensor) -> Tensor:
            first, by = start(at), step(at)
            flat = torch.where(self._reaches(first, level, rising) | above, -math.inf, math.inf)
            return torch.where(by > 0 if rising else by < 0, (level - first) / by, flat)

        return bound

    def _step(self, node: Node, rising: bool) -> tuple[Node, bool, Undo, float]:
        """The one part with a lenience; whether the whole grows with it; how a level is undone to one of it; the least value."""
        name, left, right = node.name, node.parts[0], node.parts[-1]
        if name == "negative":
            return left, False, lambda at, level: -level, -math.inf
        if name == "exp":
            return left, True, lambda at, level: level.clamp_min(0).log(), -math.inf
        if name in ("sqrt", "log") and self._range(left)[0] >= 0:
            return (left, True, *((_square, 0.0) if name == "sqrt" else (_exp, -math.inf)))
        if name == "*" and left == right and self._range(left)[0] >= 0:
            return left, True, lambda at, level: level.clamp_min(0).sqrt(), 0.0
        if len(node.parts) == 1 or left.has_lenience == right.has_lenience:
            raise _UnsolvableError
        first = left.has_lenience
        part, other = (left, right) if first else (right, left)
        value = _value(other)
        if name == "+":
            return part, True, lambda at, level: level - value(at), -math.inf
        if name == "-":
            return part, first, lambda at, level: level + value(at) if first else value(at) - level, -math.inf
        low, high = self._range(other)
        if name == "/" and not first:
            if low < 0 or self._range(part)[0] <= 0:
                raise _UnsolvableError
            return part, False, lambda at, level: value(at) / level, 0.0
        if low < 0 < high:
            raise _UnsolvableError
        if name == "/":
            return part, low >= 0, lambda at, level: level * value(at), -math.inf
        # 0 times anything is the level 0: reached, unless it must be exceeded.
        grows = low >= 0
        any_level = -math.inf if (rising == grows) != self._strict else math.inf

        def divided(at: _Position, level: Tensor) -> Tensor:
            factor = torch.as_tensor(value(at))
            return torch.where((factor == 0) & (level == 0), any_level, level / factor)

        return part, grows, divided, -math.inf

    def _range(self, node: Node) -> Range:
        return _range(node, self._leniences)


def _square(at: _Position, level: Tensor) -> Tensor:
    return level.clamp_min(0).square()


def _exp(at: _Position, level: Tensor) -> Tensor:
    return level.exp()


def _value(node: Node) -> Callable[[_Position], Any]:
    compute: Callable[[Any], Any] = compile_value(node)
    return lambda at: compute((at, 0.0, None))


# ---- trees


def _number(value: float) -> Node:
    return Node("number", 0, value=value)


def _fold(name: str, *parts: Node) -> Node:
    """A part made of others, simplified."""
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
    """The part at one lenience."""
    if node.name == "a":
        return _number(lenience)
    return (
        _fold(node.name, *(at_lenience(part, lenience) for part in node.parts)) if node.has_lenience else node
    )


def _slope(node: Node) -> Node | None:
    """What one unit of lenience adds to a part; None where that depends on the lenience."""
    if not node.has_lenience:
        return _number(0)
    if node.name == "a":
        return _number(1)
    slopes = [_slope(part) for part in node.parts]
    known = [slope for slope in slopes if slope is not None]
    if len(known) < len(slopes):
        return None
    if node.name in ("+", "-", "negative"):
        return _fold(node.name, *known)
    left, right = node.parts[0], node.parts[-1]
    if node.name == "*" and not (left.has_lenience and right.has_lenience):
        return _fold("*", *(known[0], right) if left.has_lenience else (left, known[1]))
    if node.name == "/" and not right.has_lenience:
        return _fold("/", known[0], right)
    return None


_RANGES = {
    "(v)": (0.0, 1.0),
    "max": (5e-324, 1.0),  # some token is possible
    "top": (0.0, 1.0),
    "TV": (0.0, 1.0),
    "JS": (0.0, math.log(2)),
    "H": (0.0, math.inf),
}


def _range(node: Node, leniences: Range) -> Range:
    """The least and the greatest value that a part can have."""
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
