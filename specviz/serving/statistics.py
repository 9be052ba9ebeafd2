"""What a shared engine has done and is doing, in numbers. Knows no text."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class EngineStatistics:
    """Of one pair since the server began. Counters only grow, also while the pair is unloaded and loaded again."""

    pair: str
    """Its key."""
    max_sequences: int
    """Sequences that decode at once."""
    loaded: bool = False
    running: int = 0
    """Slots taken now."""
    waiting: int = 0
    """Sequences that have no slot yet."""
    finished: Counter[str] = field(default_factory=Counter)
    """Runs by stop reason, or "failed"."""
    refused: int = 0
    """Requests refused: the queue was full."""
    tokens: int = 0
    examined: int = 0
    """Draft tokens examined; `accepted` of them were accepted."""
    accepted: int = 0
    rounds: int = 0
    """Steps of the whole batch."""
    busy_seconds: float = 0.0
    """Spent in prefill and in steps."""
    waited_seconds: float = 0.0
    """Spent by sequences in the queue, all together."""

    def count(self, tokens: int, examined: int, accepted: int) -> None:
        """Add one round of one sequence."""
        self.tokens += tokens
        self.examined += examined
        self.accepted += accepted if examined else 0
