"""A method: its rule as an expression, and its name, formula and explanation.

Knows no registry: the methods are listed in `methods`. Knows no tensor either: the page reads names, ranges and formulas at its start,
and importing torch would take seconds. `target` applies methods, `counterfactual` solves them for the lenience.
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
"""Name of speculative decoding, the method that other methods are compared with."""
OWN = "Your own"
"""The group of methods that users write."""


@dataclass(frozen=True, eq=False)
class Method:
    """One method of the registry.

    Unless it runs one model alone, it decides in one of these ways, mostly written in the language of `core.expression`:

    - `expression`, a deferral test: it determines pi, and pi determines acceptance and residual. `function` is such a test in
      Python, for what the language cannot express: (`Distributions`, lenience) -> score, threshold; trust where score >= threshold.
    - `ratio`: accept v with probability min(1, ratio); draw its replacement from the residual max(0, share·p - q). `share` may
      depend on the rejected token, and is 1 by default.
    - `matches`: the emitted token is always the verifier's own draw, and v is accepted if it equals this draw. If the models draw
      independently, `ratio` is p(v) and the residual is p without v. With `shares_noise`, both draw with the same noise (`core.gumbel`).

    Attributes:
        title: short, for tables and figures; by default the label up to its colon, or else the name.
        label: what it does, for lists to choose from; by default the title.
        group: the heading it is listed under.
        formula: as shown; by default the expression or the ratio, typeset.
        offered_range: the leniences that a slider offers, from the strictest to the most lenient; equal ends for a method without lenience.
        lenience_range: the valid leniences; by default `offered_range`.
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
        """The trees that the method has, by name: "test" and, if `compared` splits the test, "score" and "threshold"; "ratio"; "share"."""
        texts = {"ratio": self.ratio, "share": self.share}
        found = {name: parse_number(text) for name, text in texts.items() if text}
        if self.expression:
            found["test"] = parse(self.expression)
            found |= zip(("score", "threshold"), compared(found["test"]) or (), strict=False)
        return found

    @property
    def score_label(self) -> str | None:
        """The greater side of the test, typeset, or the whole test if it is no single comparison; None without a test."""
        shown = self.trees.get("score", self.trees.get("test"))
        return typeset(shown) if shown else None

    @property
    def threshold_label(self) -> str | None:
        """The lesser side of the test, typeset; None unless the test is a single comparison."""
        return typeset(self.trees["threshold"]) if "threshold" in self.trees else None

    @property
    def has_rule(self) -> bool:
        """Whether it trusts the drafter by a rule. False for the baselines, for speculative decoding, and where `is_compared` is false."""
        return self.drafts and self.verifies and self.is_compared and self.name != LOSSLESS

    @property
    def is_compared(self) -> bool:
        """Whether other methods would have the same q, p and coins, so that their decisions can be computed from a run of this method."""
        return not (self.matches or self.truncates or self.greedy_drafts)

    def sampling(self, asked: SamplingParameters, lenience: Number) -> SamplingParameters:
        """Both models' sampling parameters, given those of the request. A method that truncates raises min-p to at least 1 − lenience."""
        return asked.with_min_p(1 - lenience) if self.truncates else asked

    @property
    def has_lenience(self) -> bool:
        """Whether lenience changes anything."""
        return self.offered_range[0] < self.offered_range[1]

    def check_lenience(self, lenience: float) -> float:
        """Return `lenience` as a float, 0 for a method without lenience; raise RequestError if it is not a valid number."""
        low, high = self.lenience_range
        if isinstance(lenience, int | float) and not isinstance(lenience, bool):
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
