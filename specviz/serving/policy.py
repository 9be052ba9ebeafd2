"""How a shared engine divides its time between decoding and joining sequences, and among these. Pure: no state, no clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Policy:
    """The trade between the time to a first token and the speed of other sequences."""

    long_step: float = 0.25
    """If steps take longer than this, in seconds, joining sequences get a short first step of their own. It delays others by 25 ms."""
    reading_share: float = 3.0
    """Prefill between two steps lasts as long as this many steps, …"""
    max_reading_seconds: float = 1.0
    """… but no longer than this, unless a step takes longer."""
    oldest_share: int = 4
    """Of so many prefill passes, one goes to the oldest prefill and the others to the shortest, so that none starves."""

    def reading_seconds(self, step_seconds: float) -> float:
        """Seconds of prefill between two steps if the last step took `step_seconds`.

        At least one step: the sooner a sequence joins, the more sequences share the cost of a step.
        """
        return max(step_seconds, min(self.reading_share * step_seconds, self.max_reading_seconds))

    def next_prefill(self, passes_left: Sequence[int], passes: int) -> int:
        """Index of the prefill to go on with.

        Args:
            passes_left: of each prefill, the oldest first.
            passes: number of passes so far.
        """
        if passes % self.oldest_share == 0:
            return 0
        return min(range(len(passes_left)), key=passes_left.__getitem__)

    def gives_first_step(self, *, others_decode: bool, is_invariant: bool, step_seconds: float) -> bool:
        """Whether joining sequences get a first step of their own. Requires batch invariance to the bit (law 3)."""
        return others_decode and is_invariant and step_seconds > self.long_step
