"""Median and quartiles, and the least number for which a condition holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Quartiles:
    """Median and quartiles of some values."""

    median: float
    low: float
    high: float


def quartiles(values: Iterable[float]) -> Quartiles | None:
    """Median and quartiles, linearly interpolated; None if there are no values."""
    found = list(values)
    return Quartiles(*np.quantile(found, (0.5, 0.25, 0.75)).tolist()) if found else None


def least(holds: Callable[[float], bool]) -> float:
    """The least positive number for which a monotonic condition holds, by bisection."""
    low, high = 0.0, 1.0
    while not holds(high):
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
