"""How a shared engine divides its time between decoding and prefill, and among prefills. Pure: no state, no clock."""

from __future__ import annotations

from collections.abc import Sequence

LONG_STEP = 0.25
"""If steps take longer than this many seconds, joining sequences get a short first step of their own, which delays others by 25 ms."""
READING_SHARE = 3.0
"""Prefill between two steps may take this many times the last step's time, …"""
MAX_READING_SECONDS = 1.0
"""… but no more seconds than this, unless the step itself took more."""
OLDEST_SHARE = 4
"""Of this many prefill passes, one goes to the oldest prefill, so that none starves, and the others to the shortest."""


def reading_seconds(step_seconds: float) -> float:
    """Seconds of prefill between two steps if the last step took `step_seconds`.

    Never less than that: the sooner a sequence joins, the more sequences share the cost of a step.
    """
    return max(step_seconds, min(READING_SHARE * step_seconds, MAX_READING_SECONDS))


def next_prefill(passes_left: Sequence[int], passes: int) -> int:
    """Index of the prefill that gets the next pass.

    Args:
        passes_left: number of passes left to each prefill, the oldest prefill first.
        passes: number of passes so far, of all prefills.
    """
    if passes % OLDEST_SHARE == 0:
        return 0
    return min(range(len(passes_left)), key=passes_left.__getitem__)
