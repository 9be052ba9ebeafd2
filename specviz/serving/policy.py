"""How a shared engine divides its time between decoding and prefill, and among prefills. Pure: no state, no clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Policy:
    """The trade-off between the time to first token and the speed of other sequences."""

    long_step: float = 0.25
    """If steps take longer than this many seconds, joining sequences get a short first step of their own, which delays others by 25 ms."""
    reading_share: float = 3.0
    """Prefill between two steps may take this many times the last step's time, …"""
    max_reading_seconds: float = 1.0
    """… but no more seconds than this, unless the step itself took more."""
    oldest_share: int = 4
    """Of this many prefill passes, one goes to the oldest prefill, so that none starves, and the others to the shortest."""

    def reading_seconds(self, step_seconds: float) -> float:
        """Seconds of prefill between two steps if the last step took `step_seconds`.

        Never less than that: the sooner a sequence joins, the more sequences share the cost of a step.
        """
        return max(step_seconds, min(self.reading_share * step_seconds, self.max_reading_seconds))

    def next_prefill(self, passes_left: Sequence[int], passes: int) -> int:
        """Index of the prefill that gets the next pass.

        Args:
            passes_left: number of passes left to each prefill, the oldest prefill first.
            passes: number of passes so far, of all prefills.
        """
        if passes % self.oldest_share == 0:
            return 0
        return min(range(len(passes_left)), key=passes_left.__getitem__)

    def gives_first_step(self, *, others_decode: bool, is_invariant: bool, step_seconds: float) -> bool:
        """Whether joining sequences get a first step of their own. Requires bitwise batch invariance (law 3)."""
        return others_decode and is_invariant and step_seconds > self.long_step
