"""How a shared engine divides its time between decoding and joining sequences. Pure: no state, no clock."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Policy:
    """The trade between the time to a first token and the speed of other sequences."""

    chunk: int = 128
    """Prompt tokens of one prefill pass while other sequences decode."""
    long_step: float = 0.25
    """If steps take longer than this, in seconds, joining sequences get a short first step of their own. It delays others by 25 ms."""
    reading_share: float = 3.0
    """Prefill between two steps lasts as long as this many steps, …"""
    max_reading_seconds: float = 1.0
    """… but no longer than this, unless a step takes longer."""

    def reading_seconds(self, step_seconds: float) -> float:
        """Seconds of prefill between two steps if the last step took `step_seconds`.

        At least one step: the sooner a sequence joins, the more sequences share the cost of a step.
        """
        return max(step_seconds, min(self.reading_share * step_seconds, self.max_reading_seconds))

    def gives_first_step(self, *, others_decode: bool, is_invariant: bool, step_seconds: float) -> bool:
        """Whether joining sequences get a first step of their own. Requires batch invariance to the bit (law 3)."""
        return others_decode and is_invariant and step_seconds > self.long_step
