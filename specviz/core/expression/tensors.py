"""What a rule's tree means: functions from two models' distributions and a lenience to tensors.

Settings (numbers, the lenience) are computed in float64 and rounded where they meet a distribution; numbers of a whole position are
[..., 1], of each token [..., V]. A comparison with what is not a number does not hold. Knows no text and no method.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from specviz.core.distributions import Distributions
from specviz.core.expression.syntax import Level, Node, compared
from specviz.core.sampling import Number, indicator, tensor

Value = Any  # float | Tensor: a setting stays a number until it meets a tensor
Context = tuple[Distributions, Number, Tensor | None]
"""Distributions; the lenience, a number or [..., 1]; and the tokens [..., m] whose probabilities are asked for, None for all."""
Compiled = Callable[[Context], Value]


def compile_number(node: Node) -> Callable[[Distributions, Number, Tensor | None], Tensor]:
    """The function of a tree that is a number: (distributions, lenience, tokens) -> [..., V], or [..., m] of `tokens` alone."""
    compute = _compile(node)

    def number(b: Distributions, a: Number, tokens: Tensor | None) -> Tensor:
        found = as_tensor(compute((b, a, tokens)), b.q)
        return found.expand((b.q if tokens is None else tokens).shape)

    return number


def compile_rule(node: Node) -> Callable[[Distributions, Number], tuple[Tensor, Tensor]]:
    """The function of a tree that is a truth: (distributions, lenience) -> score, threshold. Trusted where score >= threshold.

    The score is [..., 1] where the drafter is trusted as a whole, [..., V] where each token is judged. Of a single comparison these
    are its two sides; else the score is 1 where the rule holds and 0 elsewhere, and the threshold one half.
    """
    sides = compared(node)
    if sides is None:
        compute = _compile(node)

        def rule(b: Distributions, a: Number) -> tuple[Tensor, Tensor]:
            holds = as_tensor(compute((b, a, None)), b.q)
            return _whole(holds, b), as_tensor(0.5, b.q)

        return rule
    greater, lesser = map(_compile, sides)
    names = [each.name for each in node.walk()]
    careful = not set(names).isdisjoint(_RISKY) or names.count("*") > (1 if "a" in names else _FACTORS)

    def comparison(b: Distributions, a: Number) -> tuple[Tensor, Tensor]:
        context = (b, a, None)
        score, threshold = as_tensor(greater(context), b.q), as_tensor(lesser(context), b.q)
        if careful:  # what is not a number is neither large enough nor small enough
            score = _without_nan(score, -math.inf) if score.shape[-1:] != b.q.shape[-1:] else score
            threshold = _without_nan(threshold, math.inf)
        return _whole(score, b), threshold

    return comparison


def as_tensor(value: Value, like: Tensor) -> Tensor:
    """A setting in the dtype and on the device of `like`; a tensor of these as it is."""
    return tensor(value, like.device, like.dtype)


def _whole(values: Tensor, b: Distributions) -> Tensor:
    return values if values.shape == b.q.shape else values.expand(*b.q.shape[:-1], 1)


def _without_nan(values: Tensor, instead: float) -> Tensor:
    return torch.nan_to_num(values, nan=instead, posinf=math.inf, neginf=-math.inf)


# ---- operations, on numbers and on tensors


def _divide(left: float, right: float) -> float:
    if right:
        return left / right
    return math.nan if left == 0 or left != left else math.copysign(math.inf, left) * math.copysign(1, right)


def _log(number: float) -> float:
    return math.log(number) if number > 0 else -math.inf if number == 0 else math.nan


def _exp(number: float) -> float:
    try:
        return math.exp(number)
    except OverflowError:
        return math.inf


def _least(left: float, right: float) -> float:
    return math.nan if left != left or right != right else min(left, right)


_RISKY = ("/", "sqrt", "log", "exp")
_FACTORS = 5
"""Where infinity can come out, and so what is not a number: of these, and of more factors than a float32 holds millions of, or a lenience
without bounds and more than one.
"""
_ON_NUMBERS: dict[str, Callable[..., float]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": _divide,
    "min": _least,
    "max": lambda left, right: -_least(-left, -right),
    "negative": lambda number: -number,
    "sqrt": lambda number: math.sqrt(number) if number >= 0 else math.nan,
    "log": _log,
    "exp": _exp,
    ">=": lambda left, right: float(left >= right),
    ">": lambda left, right: float(left > right),
    "<=": lambda left, right: float(left <= right),
    "<": lambda left, right: float(left < right),
    "and": _least,
    "or": lambda left, right: max(left, right),
    "not": lambda truth: 1 - truth,
}
_ON_TENSORS: dict[str, Callable[..., Tensor]] = {
    "+": torch.add,
    "-": torch.sub,
    "*": torch.mul,
    "/": torch.div,
    "min": torch.minimum,
    "max": torch.maximum,
    "negative": torch.neg,
    "sqrt": torch.sqrt,
    "log": torch.log,
    "exp": torch.exp,
    ">=": lambda left, right: indicator(torch.ge, left, right),
    ">": lambda left, right: indicator(torch.gt, left, right),
    "<=": lambda left, right: indicator(torch.le, left, right),
    "<": lambda left, right: indicator(torch.lt, left, right),
    "and": torch.mul,
    "or": torch.maximum,
    "not": lambda truth: 1 - truth,
}


def _apply(name: str, *values: Value) -> Value:
    if not any(isinstance(value, Tensor) for value in values):
        return _ON_NUMBERS[name](*values)
    like = next(value for value in values if isinstance(value, Tensor))
    return _ON_TENSORS[name](*(as_tensor(value, like) for value in values))


# ---- trees


def _compile(node: Node) -> Compiled:
    if node.name == "number":
        return lambda context: node.value
    if node.name == "a":
        return lambda context: context[1]
    if node.name == "(v)":
        return lambda context: _probabilities(context, node.of)
    if node.is_quantity:
        return lambda context: context[0].quantity(node.name, node.of, int(node.value))
    parts = [_compile(part) for part in node.parts]
    if len(parts) == 1:
        [own] = parts
        return lambda context: _apply(node.name, own(context))
    # The part that needs most room goes first: then few vocabularies are ever held at once.
    order = sorted(range(len(parts)), key=lambda at: -_room(node.parts[at]))
    settings = [part.level is Level.SETTING < node.level for part in node.parts]

    def compute(context: Context) -> Value:
        values: list[Value] = [None] * len(parts)
        for at in order:
            values[at] = parts[at](context)
            if settings[at]:
                values[at] = as_tensor(values[at], context[0].q)
        while len(values) > 1:
            values[:2] = [_apply(node.name, *values[:2])]
        return values[0]

    return compute


def _probabilities(context: Context, of: str) -> Tensor:
    b, _, tokens = context
    values: Tensor = getattr(b, of)
    return values if tokens is None else values.gather(-1, tokens)


def _room(node: Node) -> int:
    """How many vocabularies are held at once while a part is computed, its result among them."""
    if node.level < Level.TOKEN or node.is_quantity:
        return 0
    needed = sorted(map(_room, node.parts), reverse=True)
    return max(len(needed) + 1, *(need + before for before, need in enumerate(needed)))
