"""The metrics of one run, as the field defines them. `docs/metrics.md` computes each for two example rounds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import accumulate
from math import isfinite
from typing import Any


@dataclass(frozen=True)
class RunMetrics:
    """The metrics of a run; None or [] if there is nothing to divide by. The first five count only rounds with examined draft tokens.

    Attributes:
        acceptance_rate: accepted / examined draft tokens.
        draft_utilisation: accepted / drafted tokens; vLLM's draft acceptance rate.
        acceptance_rate_per_position: share of the rounds that accepted their i-th draft token.
        acceptance_histogram: numbers of rounds that accepted 0, 1, …, K draft tokens.
        mean_acceptance_length: 1 + accepted draft tokens per round. Counts a bonus token in every round, as vLLM does.
        mean_draft_length: draft tokens per round; None if nothing was drafted.
        block_efficiency: tokens emitted per verifier call.
        time_to_first_token: seconds of prefill and of the first round, without the queue.
        time_per_output_token: seconds of the later rounds per token that these rounds emitted.
        tokens_per_second: tokens per second of computing, prefill included.
    """

    acceptance_rate: float | None
    draft_utilisation: float | None
    acceptance_rate_per_position: list[float]
    acceptance_histogram: list[int]
    mean_acceptance_length: float | None
    mean_draft_length: float | None
    block_efficiency: float | None
    time_to_first_token: float | None
    time_per_output_token: float | None
    tokens_per_second: float | None


def measure(run: Any) -> RunMetrics:
    """The metrics of a `Run`. Its numbers may be anything, since a trace is untrusted."""
    verified = [each for each in run.rounds if each.examined > 0]
    first, others = run.rounds[:1], run.rounds[1:]
    drafted = sum(len(each.proposals) for each in run.rounds)
    tokens = sum(len(each.tokens) for each in run.rounds)
    accepted = sum(each.accepted for each in verified)
    # Bounded by the proposals: a foreign trace may claim any draft length.
    longest = max((min(each.draft_length, len(each.proposals) + 1) for each in verified), default=-1)
    counts = Counter(each.accepted for each in verified)
    histogram = [counts[length] for length in range(longest + 1)]
    at_least = list(accumulate(reversed(histogram)))[::-1]
    return RunMetrics(
        acceptance_rate=_ratio(accepted, sum(each.examined for each in verified)),
        draft_utilisation=_ratio(accepted, sum(len(each.proposals) for each in verified)),
        acceptance_rate_per_position=[rounds / len(verified) for rounds in at_least[1:]],
        acceptance_histogram=histogram,
        mean_acceptance_length=_ratio(len(verified) + accepted, len(verified)),
        mean_draft_length=_ratio(drafted, len(run.rounds)) or None,
        block_efficiency=_ratio(tokens, run.verifier_calls),
        time_to_first_token=_ratio(run.prefill_seconds + sum(each.seconds for each in first), len(first)),
        time_per_output_token=_ratio(
            sum(each.seconds for each in others), sum(len(each.tokens) for each in others)
        ),
        tokens_per_second=_ratio(tokens, run.seconds),
    )


def _ratio(part: float, whole: float) -> float | None:
    """The ratio; None if it is not finite, or `whole` is not above 0."""
    try:
        found = part / whole if whole > 0 else None
    except OverflowError:
        return None
    return found if found is not None and isfinite(found) else None
