"""How a shared engine divides its time between sequences that decode and those that join them. Pure: no state and no clock."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Policy:
    """The trade between the time to a first token and the speed of everybody else."""

    chunk: int = 128
    """Prompt tokens read in one pass while other sequences decode."""
    long_step: float = 0.25
    """If steps take longer than so many seconds, joining sequences get a short first step of their own. It delays all others by 25 ms."""
    reading_share: float = 3.0
    """Prompts are read for so many steps between two steps,"""
    max_reading_seconds: float = 1.0
    """but for no more than so many seconds unless one step takes longer."""

    def reading_seconds(self, step_seconds: float) -> float:
        """How long prompts are read between two steps, if the last step took `step_seconds`.

        At least as long as a step: the sooner a sequence joins, the more sequences share the cost of a step.
        """
        return max(step_seconds, min(self.reading_share * step_seconds, self.max_reading_seconds))

    def gives_first_step(self, *, others_decode: bool, is_invariant: bool, step_seconds: float) -> bool:
        """Whether a joining sequence gets a first step of its own. Only if no bit depends on which sequences share a pass (law 3)."""
        return others_decode and is_invariant and step_seconds > self.long_step
