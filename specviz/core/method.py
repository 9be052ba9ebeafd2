"""A method: its rule as an expression, and its name, formula and explanation.

Knows no registry: the rows are in `methods`. Knows no tensor either: reading names, ranges and formulas, as the page does at its
start, does not import torch, which takes seconds. `target` applies methods, `counterfactual` solves them for the lenience.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from specviz.core.expression.syntax import Node, compared, parse, parse_number, typeset
from specviz.errors import RequestError, quoted

if TYPE_CHECKING:
    from specviz.core.sampling import Number, SamplingParameters

LOSSLESS = "speed"
"""Speculative decoding, the method that others are compared with."""
OWN = "Your own"
"""The group of methods that users write."""


@dataclass(frozen=True, eq=False)
class Method:
    """One method of the registry.

    Unless it runs one model alone, it has one of these, mostly written in the language of `core.expression`:

    - `expression`, a deferral test: it determines pi, and pi determines acceptance and residual. `function` is such a test in
      Python, for what the language cannot express: (`Distributions`, lenience) -> score, threshold; trust where score >= threshold.
    - `ratio`: accept v with probability min(1, ratio); draw its replacement from the residual max(0, share·p - q). `share` may
      depend on the rejected token, and is 1 by default.
    - `matches`: the token written is always the verifier's own draw, and v is accepted if it is that token. If the models draw
      independently, the ratio is p(v) and the residual p without v; if it `shares_noise`, they use the same noise (`core.gumbel`).

    Attributes:
        title: short, for tables and figures; by default the label up to its colon, or else the name.
        label: what it does, for lists to choose from; by default the title.
        group: the heading it is listed under.
        formula: as shown; by default the expression or the ratio, typeset.
        offered_range: the leniences that a slider offers, from the strict end to the drafter's. Methods with no lenience offer equal ends.
        lenience_range: the valid leniences; by default those offered.
        source: where it is published, and which systems serve it.
        truncates: whether min-p truncates both models' distributions, at 1 − lenience.
        greedy_drafts: whether the drafter always proposes its most probable token.
    """

    name: str
    title: str = ""
    label: str = ""
    group: str = OWN
    sentence: str = ""
    formula: str = ""
    expression: str = ""
    ratio: str = ""
    share: str = ""
    function: Callable[[Any, Any], tuple[Any, Any]] | None = None
    lenience_range: tuple[float, float] = (0.0, 0.0)
    offered_range: tuple[float, float] = (0.0, 0.0)
    default_lenience: float = 0.0
    strict_end: str = ""
    drafter_end: str = ""
    source: str = ""
    drafts: bool = True
    verifies: bool = True
    matches: bool = False
    shares_noise: bool = False
    truncates: bool = False
    greedy_drafts: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", self.title or self.label.partition(":")[0] or self.name)
        object.__setattr__(self, "label", self.label or self.title)
        if self.expression and not self.formula:
            object.__setattr__(self, "formula", typeset(self.trees["test"]))
        if self.lenience_range == (0.0, 0.0):
            object.__setattr__(self, "lenience_range", self.offered_range)
        if self.ratio and not self.formula:
            object.__setattr__(self, "formula", f"accept with min(1, {typeset(self.trees['ratio'])})")

    @cached_property
    def trees(self) -> dict[str, Node]:
        """The trees by name: "test" and, if it is a single comparison, its "score" and "threshold"; "ratio" and "share"."""
        texts = {"ratio": self.ratio, "share": self.share}
        found = {name: parse_number(text) for name, text in texts.items() if text}
        if self.expression:
            found["test"] = parse(self.expression)
            found |= zip(("score", "threshold"), compared(found["test"]) or (), strict=False)
        return found

    @property
    def score_label(self) -> str | None:
        """The greater side of the test, or all of it if it is no single comparison; None without a test."""
        shown = self.trees.get("score", self.trees.get("test"))
        return typeset(shown) if shown else None

    @property
    def threshold_label(self) -> str | None:
        """The lesser side of the test; None unless it is a single comparison."""
        return typeset(self.trees["threshold"]) if "threshold" in self.trees else None

    @property
    def has_rule(self) -> bool:
        """Whether it has a rule by which it trusts the drafter. Speculative decoding, with which others are compared, counts as having none."""
        return self.drafts and self.verifies and self.is_compared and self.name != LOSSLESS

    @property
    def is_compared(self) -> bool:
        """Whether other methods can be computed from its q, p and coins: not if its coins or distributions are others than theirs."""
        return not (self.matches or self.truncates or self.greedy_drafts)

    def sampling(self, asked: SamplingParameters, lenience: Number) -> SamplingParameters:
        """The sampling parameters of both models' distributions, where these are `asked` for."""
        return asked.with_min_p(1 - lenience) if self.truncates else asked

    @property
    def has_lenience(self) -> bool:
        """Whether lenience changes anything."""
        return self.offered_range[0] < self.offered_range[1]

    def check_lenience(self, lenience: float) -> float:
        """Return `lenience` as a float, 0 for a method with none; raise RequestError if it is not a valid number."""
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
