"""Median and quartiles."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Quartiles:
    """Median and quartiles of some values."""

    median: float
    low: float
    high: float


def quartiles(values: Iterable[float]) -> Quartiles | None:
    """Median and quartiles, linearly interpolated; None if there are no values."""
    found = sorted(values)
    if not found:
        return None
    if len(found) == 1:
        return Quartiles(found[0], found[0], found[0])
    low, middle, high = statistics.quantiles(found, n=4, method="inclusive")
    return Quartiles(middle, low, high)
