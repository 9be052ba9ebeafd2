"""Compiles a rule's tree to a function from two models' distributions and a lenience to tensors.

Settings (numbers, the lenience) are computed in float64, and rounded when they are combined with a distribution. Values per position
are [..., 1], values per token [..., V]. A comparison with NaN does not hold. Knows no text and no method.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import torch
from torch import Tensor

from specviz.core.backend import indicator
from specviz.core.distributions import Distributions
from specviz.core.expression.syntax import Level, Node, compared
from specviz.core.sampling import Number, of_tokens, tensor
from specviz.errors import RuleError

Value = Any  # float | Tensor: a setting stays a number until it meets a tensor
Compiled = Callable[[Distributions, Number, Tensor | None], Value]
"""(distributions, lenience, tokens) -> a setting, one value per position [..., 1], or one per token: [..., m] for `tokens` [..., m],
[..., V] if `tokens` is None. The lenience is a number or [..., 1]."""
Rule = Callable[[Distributions, Number], tuple[Tensor, Tensor]]
"""A deferral test: (distributions, lenience) -> score, threshold. Trust where score >= threshold.

The score is [..., 1] where the drafter is trusted as a whole, [..., V] where each token is judged."""


def compile_number(node: Node) -> Compiled:
    """Compile the tree of a number to a function that returns one number for each token."""
    compute = compile_value(node)

    def number(b: Distributions, a: Number, tokens: Tensor | None) -> Tensor:
        return tensor(compute(b, a, tokens), b.q).expand((b.q if tokens is None else tokens).shape)

    return number


def compile_rule(node: Node) -> Rule:
    """Compile the tree of a rule.

    If `compared` splits the rule, score and threshold are its two sides. Otherwise the score is 1 where the rule holds and 0 elsewhere,
    and the threshold is 0.5.
    """
    sides = compared(node)
    greater, lesser = map(compile_value, sides) if sides else (compile_value(node), lambda *_: 0.5)
    return finite_rule(lambda b, a: (greater(b, a, None), lesser(b, a, None)))


def finite_rule(function: Callable[[Distributions, Number], tuple[Value, Value]]) -> Rule:
    """Turn a Python function into a rule; its score and threshold become finite tensors."""

    def rule(b: Distributions, a: Number) -> tuple[Tensor, Tensor]:
        score, threshold = (tensor(value, b.q) for value in function(b, a))
        if score.shape != b.q.shape:
            score = score.expand(*b.q.shape[:-1], 1)
        return _without_nan(score, -math.inf), _without_nan(threshold, math.inf)

    return rule


def _without_nan(values: Tensor, instead: float) -> Tensor:
    """Make values finite, for the trace: ±inf become the dtype's extremes, NaN becomes the extreme with the sign of `instead`."""
    return torch.nan_to_num(values, nan=math.copysign(torch.finfo(values.dtype).max, instead))


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


NUMBERS: dict[str, Callable[..., Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
    "min": _least,
    "max": lambda left, right: -_least(-left, -right),
    "negative": operator.neg,
    "sqrt": lambda number: math.sqrt(number) if number >= 0 else math.nan,
    "log": _log,
    "exp": _exp,
    ">=": operator.ge,
    ">": operator.gt,
    "<=": operator.le,
    "<": operator.lt,
    "and": _least,
    "or": lambda left, right: max(left, right),
    "not": lambda truth: 1 - truth,
}
"""Operators and functions on numbers; here `min` and `max` take two. Division by zero and NaN raise no error."""
_ON_TENSORS: dict[str, Callable[..., Tensor]] = {
    **{name: NUMBERS[name] for name in ("+", "-", "*", "negative", "not")},
    "/": torch.div,
    "min": torch.minimum,
    "max": torch.maximum,
    "sqrt": torch.sqrt,
    "log": torch.log,
    "exp": torch.exp,
    ">=": partial(indicator, torch.ge),
    ">": partial(indicator, torch.gt),
    "<=": partial(indicator, torch.le),
    "<": partial(indicator, torch.lt),
    "and": torch.mul,
    "or": torch.maximum,
}


def apply(name: str, *values: Value) -> Value:
    """Apply an operator or function to numbers or tensors. More than two values are combined from left to right."""
    if len(values) > 2:
        return reduce(partial(apply, name), values)
    like = next((value for value in values if isinstance(value, Tensor)), None)
    if like is None:
        return NUMBERS[name](*values)
    return _ON_TENSORS[name](*(tensor(value, like) for value in values))


# ---- trees


def compile_value(node: Node) -> Compiled:
    """Compile any tree. A tree of only numbers and the lenience returns a setting; any other tree returns a tensor."""
    if node.name == "number":
        return lambda b, a, tokens: node.value
    if node.name == "a":
        return lambda b, a, tokens: a
    if node.name == "(v)":
        return lambda b, a, tokens: of_tokens(getattr(b, node.of), tokens)
    if node.is_quantity:
        key = node.key
        return lambda b, a, tokens: b.quantity(*key)
    parts = [(compile_value(part), part.level is Level.SETTING < node.level) for part in node.parts]

    def compute(b: Distributions, a: Number, tokens: Tensor | None) -> Value:
        values = ((part(b, a, tokens), is_setting) for part, is_setting in parts)
        given = [tensor(value, b.q) if is_setting else value for value, is_setting in values]
        return apply(node.name, *given)

    return compute


# ---- whether a tree makes sense, tried before any model runs

_LENIENCES = (-1.0, 0.0, 0.137, 0.5, 1.0, 2.0)
_SENTENCES = {
    "/": "This divides by zero, whatever the models say.",
    "log": "There is no logarithm of this: it is negative, whatever the models say.",
    "sqrt": "There is no square root of this: it is negative, whatever the models say.",
}
_NO_NUMBER = "This is no number, whatever the models say."


def probe(rule: Node, text: str) -> None:
    """Raise RuleError if a part of a rule is NaN, or divides by zero, for all tried inputs. The error points to an innermost such part."""
    # Eight pairs of distributions at each lenience.
    logits = 2 * torch.randn(2, 8, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    lenience = torch.tensor(_LENIENCES, dtype=torch.float64)[:, None, None].expand(-1, 8, 1)
    b = Distributions(*logits[:, None].expand(-1, len(_LENIENCES), -1, -1), 0.7)

    def value(node: Node) -> Tensor:
        return tensor(compile_value(node)(b, lenience, None), b.q)

    for node in reversed(list(rule.walk())):  # the innermost parts first
        by_zero = node.name == "/" and not value(node.parts[1]).any()
        if not node.is_truth and (by_zero or value(node).isnan().all()):
            raise RuleError(_SENTENCES.get(node.name, _NO_NUMBER), text, node.position)
