"""Counters and histograms of a shared engine."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

from specviz.schema.trace import Round, Run

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 60.0)
"""Upper bounds of a histogram's buckets, in seconds. The last bucket has no bound."""


@dataclass
class Histogram:
    """Number of durations in each bucket, and the sum of all durations."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        """Count a duration."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


@dataclass
class EngineStatistics:
    """One pair's statistics since the server started. Counters never decrease, even if the pair is loaded again."""

    pair: str
    """Key of the pair."""
    max_sequences: int
    """Number of slots."""
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
    drafts: int = 0
    """Rounds, counted for each sequence, in which draft tokens were examined."""
    draft_tokens: int = 0
    """Draft tokens of the rounds counted in `drafts`."""
    examined: int = 0
    """Draft tokens examined."""
    accepted: int = 0
    """Examined draft tokens that were accepted."""
    accepted_per_position: Counter[int] = field(default_factory=Counter)
    """Accepted draft tokens by their position in the draft, from 0."""
    time_to_first_token: Histogram = field(default_factory=Histogram)
    """Measured from a request's arrival, so it includes the time in the queue."""
    time_per_output_token: Histogram = field(default_factory=Histogram)
    """For each run: the time after its first round, divided by the number of tokens after that round."""
    rounds: int = 0
    """Steps of the whole batch."""
    busy_seconds: float = 0.0
    """Seconds in prefill and steps."""
    waited_seconds: float = 0.0
    """Seconds in the queue, summed over sequences."""

    def count(self, round_: Round) -> None:
        """Add one round of one sequence."""
        self.tokens += len(round_.tokens)
        if round_.examined:
            self.drafts += 1
            self.draft_tokens += len(round_.proposals)
            self.examined += round_.examined
            self.accepted += round_.accepted
            self.accepted_per_position.update(range(round_.accepted))

    def count_end(self, run: Run, seconds: float) -> None:
        """Add a run that ended `seconds` after its first round."""
        self.finished[run.stop_reason] += 1
        if later := sum(len(each.tokens) for each in run.rounds[1:]):
            self.time_per_output_token.add(seconds / later)
