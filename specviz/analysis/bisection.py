"""The least number for which a condition holds."""

from __future__ import annotations

from collections.abc import Callable


def least(holds: Callable[[float], bool]) -> float:
    """The least positive number for which a monotonic condition holds, by bisection."""
    low, high = 0.0, 1.0
    while not holds(high):
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
