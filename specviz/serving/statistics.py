"""What an engine that many share has done and is doing, in numbers. Knows no text."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from specviz.schema.trace import Round


@dataclass
class PairTally:
    """Of one pair since the server began. Counters only grow, also over unloading and loading again."""

    pair: str
    """Its key."""
    max_rows: int
    """Texts that can be written at once."""
    loaded: bool = False
    running: int = 0
    """Texts being written now."""
    waiting: int = 0
    """Texts that wait for their turn now."""
    finished: Counter[str] = field(default_factory=Counter)
    """Texts by why they ended: a run's stop reason, or "failed"."""
    refused: int = 0
    """Texts not taken: the queue was full, or the visitor had too many."""
    tokens: int = 0
    examined: int = 0
    """Proposals examined; `accepted` of them were accepted."""
    accepted: int = 0
    rounds: int = 0
    """Rounds of the whole batch."""
    busy_seconds: float = 0.0
    """Spent reading prompts and in rounds."""
    waited_seconds: float = 0.0
    """Spent waiting by texts before their prompt was read, all together."""

    def count(self, round_: Round) -> None:
        """A round of one text was decided."""
        self.tokens += len(round_.tokens)
        self.examined += round_.examined
        self.accepted += round_.accepted if round_.examined else 0
