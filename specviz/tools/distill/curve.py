"""The curve of acceptance rates against tokens learned from, and what it lets expect. Knows figures; trains nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2
from statistics import linear_regression

_FITTED = 4
"""Last points of a curve that count: early ones say little of what comes."""
_FACTORS = (2, 10)
"""How many times the tokens is said what to expect of."""


@dataclass(frozen=True)
class CurvePoint:
    """A student on its way.

    Attributes:
        tokens: learned from so far, each as often as it was.
        acceptance: rates on held-out prompts, by setting.
    """

    tokens: int
    acceptance: dict[str, float]


@dataclass(frozen=True)
class Expectation:
    """What more learning should bring, if acceptance goes on rising by so much with every doubling.

    Attributes:
        gain: in acceptance, of a doubling of the tokens.
        acceptance: by how many times the tokens; at most 1.
    """

    gain: float
    acceptance: dict[str, float]


def expectations(curve: Sequence[CurvePoint]) -> dict[str, Expectation]:
    """By setting, from a line through the curve's last points over the logarithm of tokens; {} of fewer than two points."""
    last = curve[-_FITTED:]
    if len({point.tokens for point in last}) < 2:
        return {}
    found = {}
    for setting, reached in last[-1].acceptance.items():
        rates = [point.acceptance[setting] for point in last]
        gain = linear_regression([log2(point.tokens) for point in last], rates).slope
        expected = {str(times): min(1.0, round(reached + gain * log2(times), 4)) for times in _FACTORS}
        found[setting] = Expectation(round(gain, 4), expected)
    return found
