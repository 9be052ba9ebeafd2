"""The draft length that is chosen: the one that pays, whatever drafting and verifying cost."""

from __future__ import annotations

import random

import pytest

from specviz.pacing import Costs, Pace, draft_length
from specviz.request import MAX_DRAFT_LENGTH


def served(
    acceptance: float,
    *,
    drafting: float,
    verifying: float,
    by_token: float,
    rounds: int = 200,
    noise: float = 0.0,
) -> list[int]:
    """The lengths chosen for a request whose proposals are accepted with this chance, at these costs in seconds."""
    dice, pace, costs, chosen = random.Random(0), Pace(), Costs(), []
    for _ in range(rounds):
        length = draft_length(costs, [pace])
        accepted = next((i for i in range(length) if dice.random() >= acceptance), length)
        pace.note(min(accepted + 1, length), accepted)
        jitter = 1 + noise * dice.random()
        costs.note(length, length * drafting * jitter, (verifying + by_token * length) * jitter)
        chosen.append(length)
    return chosen


def speed(length: int, acceptance: float, drafting: float, verifying: float, by_token: float) -> float:
    """Tokens per second at a fixed length, exactly."""
    tokens = sum(acceptance**place for place in range(length))
    return tokens / (length * drafting + verifying + by_token * length)


@pytest.mark.parametrize("acceptance", [0.05, 0.3, 0.5, 0.7, 0.85, 0.95])
@pytest.mark.parametrize(
    ("drafting", "by_token"), [(0.1, 0.0), (0.15, 0.02), (0.15, 0.3), (0.02, 0.05), (0.8, 0.02)]
)
def test_what_it_settles_on_is_within_a_twentieth_of_the_best(
    acceptance: float, drafting: float, by_token: float
) -> None:
    costs = (acceptance, drafting, 1.0, by_token)
    best = max(speed(length, *costs) for length in range(1, MAX_DRAFT_LENGTH + 1))
    settled = served(acceptance, drafting=drafting, verifying=1.0, by_token=by_token, rounds=400, noise=0.3)[
        50:
    ]
    # By tokens over seconds of all its rounds, as a clock would have it.
    tokens = sum(sum(acceptance**place for place in range(length)) for length in settled)
    seconds = sum(length * drafting + 1.0 + by_token * length for length in settled)
    assert tokens / seconds > 0.95 * best


def test_where_the_drafter_is_hopeless_it_drafts_one() -> None:
    assert set(served(0.0, drafting=0.15, verifying=1.0, by_token=0.02)[20:]) == {1}


def test_where_the_drafter_is_always_right_it_drafts_as_many_as_it_may() -> None:
    assert set(served(1.0, drafting=0.05, verifying=1.0, by_token=0.01)[40:]) == {MAX_DRAFT_LENGTH}


def test_it_comes_back_when_the_drafter_is_right_again() -> None:
    pace, costs = Pace(), Costs()
    for length in (4, 2, 1, 1):
        costs.note(length, 0.1 * length, 1.0)
    for _ in range(100):
        pace.note(1, 0)
    assert draft_length(costs, [pace]) == 1
    for _ in range(60):
        pace.note(1, 1)
    assert draft_length(costs, [pace]) > 3


def test_one_slow_round_is_forgotten() -> None:
    pace, costs = Pace(), Costs()
    for _ in range(60):
        pace.note(4, 3)
    costs.note(8, 0.8, 50.0)
    assert draft_length(costs, [pace]) == 2  # the opening is not over
    for _ in range(40):
        length = draft_length(costs, [pace])
        costs.note(length, 0.1 * length, 1.0)
    assert draft_length(costs, [pace]) >= 4


def test_requests_served_together_draft_what_pays_for_all_of_them() -> None:
    right, wrong, costs = Pace(), Pace(), Costs()
    for length in (4, 2, 1, 1):
        costs.note(length, 0.1 * length, 1.0 + 0.02 * length)
    for _ in range(100):
        right.note(8, 8)
        wrong.note(1, 0)
    alone = draft_length(costs, [right]), draft_length(costs, [wrong])
    together = draft_length(costs, [right, wrong, wrong, wrong])
    assert alone == (MAX_DRAFT_LENGTH, 1)
    assert alone[1] <= together <= alone[0]
    expected = [a + 3 * b for a, b in zip(right.tokens(), wrong.tokens(), strict=True)]
    speeds = [tokens / seconds for tokens, seconds in zip(expected, costs.rounds(), strict=True)]
    assert together == 1 + speeds.index(max(speeds))
