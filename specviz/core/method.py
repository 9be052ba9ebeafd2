"""What a method is: its rule as an expression, and how it is named, written and explained.

Knows no registry: the rows are in `methods`. What a rule means in tensors is imported when it is first asked for: whoever
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
    from specviz.core.expression.solve import Bound
    from specviz.core.sampling import Number

Rule: TypeAlias = "Callable[[Distributions, Number], tuple[Tensor, Tensor]]"
"""A deferral test: (distributions, a) -> score, threshold. Trust where score >= threshold.

The score is [..., 1] where the drafter is trusted as a whole, [..., V] where each token is judged."""
Ratio: TypeAlias = "Callable[[Distributions, Number, Tensor | None], Tensor]"
"""(distributions, a, tokens [..., m]) -> a number of each of these tokens [..., m], or of all [..., V]."""

LOSSLESS = "speed"
"""Speculative decoding, the method that others are compared with."""
OWN = "Your own"
"""The group of methods that are no part of SpecViz."""


@dataclass(frozen=True, eq=False)
class Method:
    """One method of the registry.

    It has one of these, in the language of `core.expression`, or none where one model runs alone:

    - `expression`, a deferral test: pi follows from it, and acceptance and residual from pi. `function` is the same as a `Rule`,
      for what the language does not say.
    - `ratio`: accept v with min(1, ratio), draw what replaces it from the residual max(0, share·p - q). `share` may depend on
      the rejected token; 1 where it is left out.

    Attributes:
        title: short, for tables and figures.
        label: what it does, for lists to choose from; the title where it is left out.
        group: one of `methods.GROUPS`.
        formula: as it is shown; that of the expression where it is left out.
        lenience_range, offered_range: bounds of what is valid and of what a slider offers, from the strict end to the
            drafter's. Methods with no lenience have equal ends.
        source: where it is published, and which systems serve it.
    """

    name: str
    title: str
    label: str = ""
    group: str = OWN
    sentence: str = ""
    formula: str = ""
    expression: str = ""
    ratio: str = ""
    share: str = ""
    function: Rule | None = None
    lenience_range: tuple[float, float] = (0.0, 0.0)
    offered_range: tuple[float, float] = (0.0, 0.0)
    default_lenience: float = 0.0
    strict_end: str = ""
    drafter_end: str = ""
    source: str = ""
    drafts: bool = True
    verifies: bool = True

    def __post_init__(self) -> None:
        if not self.label:
            object.__setattr__(self, "label", self.title)
        if self.test is not None and not self.formula:
            object.__setattr__(self, "formula", typeset(self.test))
        if self.ratio and not self.formula:
            object.__setattr__(self, "formula", f"accept with min(1, {typeset(self.trees['ratio'])})")

    @cached_property
    def test(self) -> Node | None:
        """The expression's tree; None without one."""
        return parse(self.expression) if self.expression else None

    @cached_property
    def trees(self) -> dict[str, Node]:
        """The trees by name: "test" and, where it has two sides, its "score" and "threshold"; "ratio" and "share"."""
        texts = {"ratio": self.ratio, "share": self.share}
        found = {name: parse_number(text) for name, text in texts.items() if text}
        if self.test is not None:
            found["test"] = self.test
            found |= zip(("score", "threshold"), compared(self.test) or (), strict=False)
        return found

    @cached_property
    def rule(self) -> Rule | None:
        """The deferral test; None without one."""
        if self.function or self.test is None:
            return self.function
        from specviz.core.expression.tensors import compile_rule

        return compile_rule(self.test)

    @cached_property
    def ratio_of(self) -> Ratio | None:
        """The acceptance ratio, not yet clamped to 1; 0 where it is not a number, as where p = q = 0. None without one."""
        if not self.ratio:
            return None
        compute = self._compiled("ratio")
        return lambda b, a, tokens: compute(b, a, tokens).nan_to_num(0.0, math.inf, -math.inf)

    @cached_property
    def share_of(self) -> Ratio | None:
        """The factor of p in the residual, by the rejected token; None where it is 1."""
        return self._compiled("share") if self.share else None

    def _compiled(self, name: str) -> Ratio:
        from specviz.core.expression.tensors import compile_number

        return compile_number(self.trees[name])

    @cached_property
    def critical_lenience(self) -> Bound | None:
        """(readings, score or coin) -> the smallest lenience at which that score passes the test, or that coin is below the ratio.

        None without a tree, or where it cannot be solved for the lenience.
        """
        from specviz.core.expression.solve import solve_ratio, solve_test

        if self.ratio:
            return solve_ratio(self.trees["ratio"], self.lenience_range)
        return solve_test(self.test, self.lenience_range) if self.test else None

    @property
    def score_label(self) -> str | None:
        """The greater side of the test; the whole test where it is no single comparison, None without one."""
        shown = self.trees.get("score", self.test)
        return typeset(shown) if shown else None

    @property
    def threshold_label(self) -> str | None:
        """The lesser side of the test; None where it has not two sides."""
        return typeset(self.trees["threshold"]) if "threshold" in self.trees else None

    @property
    def solves(self) -> bool:
        """Whether critical leniences are known."""
        alone = not (self.drafts and self.verifies)
        return alone or not self.has_lenience or self.critical_lenience is not None

    @property
    def has_rule(self) -> bool:
        """Whether it has a rule of its own: neither a model alone nor speculative decoding, which others are compared with."""
        return self.name != LOSSLESS and bool(self.function or self.expression or self.ratio)

    @cached_property
    def reads(self) -> frozenset[str]:
        """Of q, p, q1 and p1, those that its test or its ratio reads; all where a function tests."""
        if self.function:
            return frozenset(DISTRIBUTIONS)
        return frozenset[str]().union(*(tree.reads for tree in self.trees.values()))

    @property
    def has_lenience(self) -> bool:
        """Whether lenience changes anything."""
        return self.offered_range[0] < self.offered_range[1]

    def check_lenience(self, lenience: float) -> float:
        """Return `lenience` as a float, or raise RequestError where it is not a number of the valid range."""
        low, high = self.lenience_range
        if isinstance(lenience, int | float):
            if not self.has_lenience and lenience == lenience:  # all but NaN
                return 0.0
            if self.has_lenience and abs(lenience) <= sys.float_info.max and low <= lenience <= high:
                return float(lenience)
        if not self.has_lenience:
            right = "takes no lenience: leave it out"
        elif math.isfinite(high):
            right = f"takes a number from {low:g} (strict) to {high:g} (the drafter's)"
        elif math.isfinite(low):
            right = f"takes a number of at least {low:g}"
        else:
            right = "takes any finite number"
        raise RequestError(f"Lenience {quoted(lenience)} does not fit {self.name}, which {right}.")
