"""The draft length that is chosen for a pair: the one that pays, whatever drafting and verifying cost."""

from __future__ import annotations

import pytest

from specviz.engine.draft_length import ACCEPTANCE, best_draft_length, expected_tokens
from specviz.runtime.pass_times import PassTimes
from specviz.schema.settings import MAX_DRAFT_LENGTH


def pair(drafting: float, by_token: float, level: float = 1.0) -> PassTimes:
    """A pair whose verifier's pass over n tokens takes `level` + n · `by_token`."""
    verifier = tuple((tokens, level + tokens * by_token) for tokens in (1, 2, 4, 8, 16, 32))
    return PassTimes(((1, drafting), (8, drafting)), verifier)


@pytest.mark.parametrize("sequences", [1, 8])
@pytest.mark.parametrize(
    ("drafting", "by_token"), [(0.1, 0.0), (0.15, 0.02), (0.15, 0.3), (0.02, 0.05), (0.8, 0.02)]
)
def test_no_other_length_emits_more_tokens_a_second(drafting: float, by_token: float, sequences: int) -> None:
    def speed(length: int) -> float:
        seconds = length * drafting + 1.0 + sequences * length * by_token
        return expected_tokens(ACCEPTANCE, length) / seconds

    chosen = best_draft_length(pair(drafting, by_token), sequences)
    assert speed(chosen) == pytest.approx(max(map(speed, range(1, MAX_DRAFT_LENGTH + 1))))


def test_a_single_sequence_always_drafts_two_tokens_or_more() -> None:
    """One a round brings it nothing, whatever was measured; of several each may."""
    dear = pair(0.5, 1.0, level=0.0)
    assert (best_draft_length(dear, 1), best_draft_length(dear, 2)) == (2, 1)


def test_pass_times_follow_what_was_measured() -> None:
    times = PassTimes(((1, 0.5), (8, 1.2)), ((1, 6.0), (8, 13.0), (32, 61.0)))
    assert [times.verify(tokens) for tokens in (1, 8, 20, 32)] == pytest.approx([6.0, 13.0, 37.0, 61.0])
    assert times.verify(44) == pytest.approx(85.0)
    assert times.draft(15) == pytest.approx(1.9)


def test_tokens_of_a_round_by_hand() -> None:
    """At a = 1/2 three draft tokens give 1 + 1/2 + 1/4 tokens."""
    assert expected_tokens(0.5, 3) == 1.75
