"""Numbers of a shared engine."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class EngineStatistics:
    """One pair's numbers since the server began. Counters never decrease, even if the pair is unloaded and loaded again."""

    pair: str
    """Its key."""
    max_sequences: int
    """Slots."""
    loaded: bool = False
    running: int = 0
    """Slots in use now."""
    waiting: int = 0
    """Sequences queued now."""
    finished: Counter[str] = field(default_factory=Counter)
    """Runs by stop reason, or "failed"."""
    refused: int = 0
    """Sequences refused because the queue was full."""
    tokens: int = 0
    examined: int = 0
    """Draft tokens examined."""
    accepted: int = 0
    """Examined draft tokens that were accepted."""
    rounds: int = 0
    """Steps of the whole batch."""
    busy_seconds: float = 0.0
    """Seconds in prefill and steps."""
    waited_seconds: float = 0.0
    """Seconds in the queue, summed over sequences."""

    def count(self, tokens: int, examined: int, accepted: int) -> None:
        """Add one round of one sequence."""
        self.tokens += tokens
        self.examined += examined
        self.accepted += accepted if examined else 0
