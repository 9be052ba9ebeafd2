"""Figures of a number of values: median and quartiles, and rounding that makes results compare as text.

Knows numbers only; the intervals of a sweep are `specviz.analysis.sweep.bootstrap`'s.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

_NOISE = 1e-12
"""Numbers closer to 0 than this are rounding errors of sums."""


@dataclass(frozen=True)
class Quartiles:
    """Median and quartiles of `count` values."""

    median: float
    low: float
    high: float
    count: int


def quartiles(values: Iterable[float]) -> Quartiles | None:
    """Median and quartiles (linear between neighbours); None if there are no values."""
    found = sorted(values)
    if not found:
        return None
    if len(found) == 1:
        return Quartiles(found[0], found[0], found[0], 1)
    low, middle, high = statistics.quantiles(found, n=4, method="inclusive")
    return Quartiles(middle, low, high, len(found))


def rounded(value: float) -> float:
    """To six significant digits; what is nearer to 0 than rounding errors becomes 0."""
    return 0.0 if abs(value) < _NOISE else float(f"{value:.6g}")
