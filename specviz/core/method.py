"""What a method is: its rule as an expression, and how it is named, written and explained.

Knows no registry: the rows are `methods` and `later_methods`. What a rule means in tensors is imported when it is first asked for: whoever
only reads names, ranges and formulas, as the page does at its start, needs no torch, which takes seconds.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from specviz.core.expression.syntax import DISTRIBUTIONS, Node, compared, parse, parse_number, typeset
from specviz.errors import RequestError, quoted

if TYPE_CHECKING:
    from torch import Tensor

    from specviz.core.distributions import Distributions
    from specviz.core.sampling import Number

Rule: TypeAlias = "Callable[[Distributions, Number], tuple[Tensor, Tensor]]"
"""A deferral test: (distributions, a) -> score, threshold. Trust where score >= threshold.

The score is [..., 1] where the drafter is trusted as a whole, [..., V] where each token is judged."""
Weight: TypeAlias = "Callable[[Distributions, Number, Tensor | None], Tensor]"
"""(distributions, a, tokens [..., m]) -> a number of each of these tokens [..., m], or of all [..., V]."""

OWN = "Your own"
"""The group of methods that are no part of SpecViz."""


@dataclass(frozen=True)
class Method:
    """One method of the registry.

    It has one of these, in the language of `core.expression`, or none where a model runs alone:

    - `expression`, a deferral test: pi follows from it, and acceptance and residual from pi. `function` is the same as a `Rule`,
      for what the language does not say.
    - `weight`: accept v with min(1, weight / q(v)), draw what replaces it from the residual max(0, share·p - q). `share` may speak
      of the rejected token; 1 where it is left out.

    Attributes:
        title: short, for tables and figures.
        label: what it does, for lists to choose from; the title where it is left out.
        group: one of `methods.GROUPS`.
        formula: as it is shown; that of the expression where it is left out.
        lenience_range, offered_range: bounds of what is valid and of what a slider offers, from the strict end to the
            drafter's. Methods with no lenience have equal ends.
        lenience_at: (distributions, score [...]) -> the lenience [...] from which on that score passes the test.
        accepts_from: (distributions, q(v), p(v), coin, [...] each) -> the lenience [...] from which on v is accepted, where that
            needs no test. Without either what-if does not say at which lenience a verdict turns.
        source: where it is published, and which systems serve it.
    """

    name: str
    title: str
    label: str = ""
    group: str = OWN
    sentence: str = ""
    formula: str = ""
    expression: str = ""
    weight: str = ""
    share: str = ""
    function: Rule | None = None
    lenience_range: tuple[float, float] = (0.0, 0.0)
    offered_range: tuple[float, float] = (0.0, 0.0)
    default_lenience: float = 0.0
    strict_end: str = ""
    drafter_end: str = ""
    lenience_at: Callable[[Distributions, Tensor], Tensor] | None = None
    accepts_from: Callable[[Distributions, Tensor, Tensor, Tensor], Tensor] | None = None
    source: str = ""
    drafts: bool = True
    verifies: bool = True

    def __post_init__(self) -> None:
        if not self.label:
            object.__setattr__(self, "label", self.title)
        if self.test is not None and not self.formula:
            object.__setattr__(self, "formula", typeset(self.test))

    @cached_property
    def test(self) -> Node | None:
        """The expression's tree; None without one."""
        return parse(self.expression) if self.expression else None

    @cached_property
    def rule(self) -> Rule | None:
        """The deferral test; None without one."""
        if self.function or self.test is None:
            return self.function
        from specviz.core.expression.tensors import compile_rule

        return compile_rule(self.test)

    @cached_property
    def weigh(self) -> Weight | None:
        """What a proposal is accepted in proportion to; None where a rule, or one model alone, decides."""
        return _weight(self.weight) if self.weight else None

    @cached_property
    def scale(self) -> Weight | None:
        """The factor of p in the residual, by the rejected token; None where it is 1."""
        return _weight(self.share) if self.share else None

    @property
    def score_label(self) -> str | None:
        """The greater side of the test; the whole test where it is no single comparison, None without one."""
        return self._labels[0]

    @property
    def threshold_label(self) -> str | None:
        """The lesser side of the test; None where it has not two sides."""
        return self._labels[1]

    @cached_property
    def _labels(self) -> tuple[str | None, str | None]:
        if self.test is None:
            return None, None
        sides = compared(self.test)
        if sides is None:
            return typeset(self.test), None
        greater, lesser = map(typeset, sides)
        return greater, lesser

    @property
    def solves(self) -> bool:
        """Whether it is known at which lenience a verdict turns."""
        alone = not (self.drafts and self.verifies)
        return alone or not self.has_lenience or bool(self.lenience_at or self.accepts_from)

    @property
    def has_rule(self) -> bool:
        """Whether it has a rule of its own: neither a model alone nor speculative decoding, which others are compared with."""
        return bool(self.function or self.expression or self.weight)

    @cached_property
    def reads(self) -> frozenset[str]:
        """Of q, p, q1 and p1, those that its test or its weights read; all where a function tests."""
        if self.function:
            return frozenset(DISTRIBUTIONS)
        trees = [self.test] if self.test else []
        trees += [parse_number(each) for each in (self.weight, self.share) if each]
        return frozenset[str]().union(*(tree.reads for tree in trees))

    @property
    def has_lenience(self) -> bool:
        """Whether lenience changes anything."""
        return self.offered_range[0] < self.offered_range[1]

    def check_lenience(self, lenience: float) -> float:
        """Return `lenience` as a float, or raise RequestError where it is not a number of the valid range."""
        low, high = self.lenience_range
        valid = isinstance(lenience, int | float) and abs(lenience) <= sys.float_info.max
        valid = valid and low <= lenience <= high
        if not self.has_lenience:
            return (
                0.0
                if isinstance(lenience, int | float) and lenience == lenience  # all but NaN
                else self._reject(lenience)
            )
        return float(lenience) if valid else self._reject(lenience)

    def _reject(self, lenience: object) -> float:
        low, high = self.lenience_range
        if not self.has_lenience:
            right = "takes no lenience: leave it out"
        elif math.isfinite(high):
            right = f"takes a number from {low:g} (strict) to {high:g} (the drafter's)"
        elif math.isfinite(low):
            right = f"takes a number of at least {low:g}"
        else:
            right = "takes any finite number"
        raise RequestError(f"Lenience {quoted(lenience)} does not fit {self.name}, which {right}.")


def _weight(expression: str) -> Weight:
    from specviz.core.expression.tensors import compile_number

    return compile_number(parse_number(expression))
