"""The figures of a run, by three definitions, against a count by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from specviz.schema.run_metrics import RunMetrics, measure
from specviz.schema.trace import Run, parse_trace
from tests.support.traces import end_entry, line, round_entry, run_entry, token_entry

EMPTY = RunMetrics(None, None, [], [], None, None, None, None, None, None)


def entry(index: int, length: int, drafted: int, examined: int, accepted: int, seconds: float) -> dict:
    """A round that emits one token for each examined draft token."""
    tokens = [token_entry("a", accepted=n < accepted) for n in range(examined)]
    proposals = [{"id": 1, "text": "a", "q": 0.5}] * drafted
    return round_entry(tokens, index=index, draft_length=length, proposals=proposals, seconds=seconds)


# Drafted, examined, accepted; the second round is accepted whole, with the K-th draft token.
ROUNDS = [entry(0, 5, 4, 2, 1, 0.25), entry(1, 5, 5, 5, 5, 0.5), entry(2, 3, 2, 1, 0, 0.125)]


def run(rounds: list[dict] = ROUNDS, **end: Any) -> Run:
    ends = end_entry(len(rounds), "speed", "length") | {"prefill_seconds": 0.5, "seconds": 1.375} | end
    return parse_trace(map(line, [run_entry("speed", draft_length=None), *rounds, ends]))


def test_ours_without_a_bonus_token_by_examined_tokens() -> None:
    assert run().metrics() == RunMetrics(
        acceptance_rate=6 / 8,  # accepted 1 + 5 + 0, examined 2 + 5 + 1
        draft_utilisation=6 / 11,  # drafted 4 + 5 + 2
        acceptance_rate_per_position=[2 / 3, 1 / 3, 1 / 3, 1 / 3, 1 / 3],
        acceptance_histogram=[1, 1, 0, 0, 0, 1],
        mean_acceptance_length=3.0,  # 1 + 6 / 3
        mean_draft_length=11 / 3,
        block_efficiency=8 / 3,  # emitted 2 + 5 + 1
        time_to_first_token=0.75,  # 0.5 + 0.25
        time_per_output_token=0.625 / 6,  # 0.5 + 0.125, for 5 + 1 tokens
        tokens_per_second=8 / 1.375,
    )


def test_what_cannot_be_counted_is_none() -> None:
    assert replace(run(), rounds=[], verifier_calls=0, seconds=0.0).metrics() == EMPTY
    alone = [entry(0, 0, 0, 1, 0, 0.25) | {"examined": 0}] * 2
    found = run(alone).metrics()
    times = replace(EMPTY, block_efficiency=1.0, time_to_first_token=0.75, time_per_output_token=0.25)
    assert found == replace(times, tokens_per_second=2 / 1.375)


@pytest.mark.parametrize("odd", [{"accepted": 10**400}, {"accepted": -3}, {"draft_length": 10**9}])
def test_any_numbers_of_a_foreign_trace_give_figures_that_can_be_written(odd: dict[str, Any]) -> None:
    """None of them is infinite, and no list is longer than the draft."""
    found = run([each | odd for each in ROUNDS], prefill_seconds=1e308)
    assert len(measure(found).acceptance_histogram) <= 7
    assert json.loads(list(found.lines())[-1])["metrics"]["time_to_first_token"] in (None, 1e308)
