"""The curve of acceptance rates against tokens learned from, and what it lets expect. Knows figures; trains nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import log2
from pathlib import Path
from statistics import linear_regression

_FITTED = 8
"""Of a curve count the points from an eighth of the tokens on: early ones say little of what comes."""
_SHORTEST = 2
"""How many times the tokens they must span to say anything."""
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

    @staticmethod
    def read(folder: Path) -> list[CurvePoint]:
        """The curve in the report of a drafter in `folder`; [] if it has none that can be read."""
        try:
            report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
            return [CurvePoint(**point) for point in report.get("acceptance_by_tokens", [])]
        except (OSError, ValueError, TypeError, AttributeError):
            return []


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
    """By setting, from a line through the curve's last points over the logarithm of tokens; {} where they are too near."""
    last = [point for point in curve if point.tokens * _FITTED >= curve[-1].tokens]
    if not last or last[-1].tokens < last[0].tokens * _SHORTEST:
        return {}
    found = {}
    for setting, reached in last[-1].acceptance.items():
        rates = [point.acceptance[setting] for point in last]
        gain = linear_regression([log2(point.tokens) for point in last], rates).slope
        expected = {str(times): min(1.0, round(reached + gain * log2(times), 4)) for times in _FACTORS}
        found[setting] = Expectation(round(gain, 4), expected)
    return found
