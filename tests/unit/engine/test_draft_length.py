"""The draft length that is chosen: the one that pays, whatever drafting and verifying cost."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from specviz.engine.draft_length import (
    AcceptanceByConfidence,
    AcceptanceHistory,
    AdaptiveDraftLength,
    OneDraftToken,
    OwnDraftLengths,
    expected_passes,
    expected_tokens,
)
from specviz.engine.round_costs import BatchCosts, RoundCosts
from specviz.schema.settings import MAX_DRAFT_LENGTH


def served(
    acceptance: float,
    *,
    drafting: float,
    verifying: float,
    by_token: float,
    rounds: int = 200,
    noise: float = 0.0,
    holds_back: bool = False,
    late: float = 1.0,
) -> list[int]:
    """The lengths chosen for a request whose proposals are accepted with this chance, at these costs in seconds; the first two rounds take
    so many times as long.
    """
    dice, history, costs, chosen = random.Random(0), AcceptanceHistory(), RoundCosts(), []
    for index in range(rounds):
        length = AdaptiveDraftLength(costs, [history], [], holds_back).length
        accepted = next((i for i in range(length) if dice.random() >= acceptance), length)
        history.update(min(accepted + 1, length), accepted)
        passes = length - 1 if holds_back and accepted < length - 1 else length
        jitter = (1 + noise * dice.random()) * (late if index < 2 else 1.0)
        costs.update(length, passes, passes * drafting * jitter, (verifying + by_token * length) * jitter)
        chosen.append(length)
    return chosen


def spent(
    length: int, acceptance: float, drafting: float, verifying: float, by_token: float, holds_back: bool
) -> float:
    """Seconds of a round of a fixed length, on average."""
    passes = expected_passes(acceptance, length) if holds_back else length
    return passes * drafting + verifying + by_token * length


def speed(length: int, acceptance: float, *costs: float, holds_back: bool = False) -> float:
    """Tokens per second at a fixed length, exactly."""
    return expected_tokens(acceptance, length) / spent(length, acceptance, *costs, holds_back=holds_back)


@pytest.mark.parametrize("acceptance", [0.05, 0.3, 0.5, 0.7, 0.85, 0.95])
@pytest.mark.parametrize(
    ("drafting", "by_token"), [(0.1, 0.0), (0.15, 0.02), (0.15, 0.3), (0.02, 0.05), (0.8, 0.02)]
)
@pytest.mark.parametrize("holds_back", [False, True])
def test_what_it_settles_on_is_within_a_twentieth_of_the_best(
    acceptance: float, drafting: float, by_token: float, holds_back: bool
) -> None:
    costs = (acceptance, drafting, 1.0, by_token)
    best = max(speed(length, *costs, holds_back=holds_back) for length in range(1, MAX_DRAFT_LENGTH + 1))
    given = {"drafting": drafting, "verifying": 1.0, "by_token": by_token, "holds_back": holds_back}
    settled = served(acceptance, rounds=400, noise=0.3, **given)[50:]
    # By tokens over seconds of all its rounds, as a clock would have it.
    tokens = sum(expected_tokens(acceptance, length) for length in settled)
    assert tokens / sum(spent(length, *costs, holds_back) for length in settled) > 0.95 * best


def test_where_the_drafter_is_hopeless_it_drafts_one() -> None:
    assert set(served(0.0, drafting=0.15, verifying=1.0, by_token=0.02)[60:]) == {1}


def test_where_the_drafter_is_always_right_it_drafts_as_many_as_it_may() -> None:
    assert set(served(1.0, drafting=0.05, verifying=1.0, by_token=0.01)[40:]) == {MAX_DRAFT_LENGTH}


def test_it_comes_back_when_the_drafter_is_right_again() -> None:
    history, costs = AcceptanceHistory(), RoundCosts()
    for length in (4, 2, 1, 1):
        costs.update(length, length, 0.1 * length, 1.0)
    for _ in range(100):
        history.update(1, 0)
    assert AdaptiveDraftLength(costs, [history], []).length == 1
    for _ in range(60):
        history.update(1, 1)
    assert AdaptiveDraftLength(costs, [history], []).length > 3


def test_one_slow_round_is_forgotten() -> None:
    history, costs = AcceptanceHistory(), RoundCosts()
    for _ in range(60):
        history.update(4, 3)
    costs.update(8, 8, 0.8, 50.0)
    assert AdaptiveDraftLength(costs, [history], []).length == 2  # the opening is not over
    for _ in range(40):
        length = AdaptiveDraftLength(costs, [history], []).length
        costs.update(length, length, 0.1 * length, 1.0)
    assert AdaptiveDraftLength(costs, [history], []).length >= 4


def test_a_slow_beginning_is_not_taken_for_what_drafting_costs() -> None:
    """The first rounds of a server are held up by all that begins with them: longer ones must not seem cheap beside them."""
    costs = RoundCosts()
    for length, late in ((4, 40.0), (2, 20.0), (5, 0.0), (8, 0.0), (3, 0.0)):
        costs.update(length, length, 0.1 * length, 2.0 + 0.2 * length + late)
    remaining = costs.estimates()[1]
    assert remaining[0] == pytest.approx(2.2, abs=0.3)
    assert remaining[7] - remaining[0] == pytest.approx(1.4, abs=0.3)


@pytest.mark.parametrize("late", [2.0, 3.0, 5.0, 8.0])
def test_first_rounds_that_are_held_up_do_not_keep_a_text_from_drafting(late: float) -> None:
    """A browser beside the server is busiest when the first text begins: by those rounds alone no other would draft as far again."""
    found = served(0.5, drafting=0.7, verifying=6.5, by_token=0.3, rounds=60, late=late)
    best = max(speed(length, 0.5, 0.7, 6.5, 0.3) for length in range(1, MAX_DRAFT_LENGTH + 1))
    assert min(speed(length, 0.5, 0.7, 6.5, 0.3) for length in found[10:]) > 0.9 * best


def test_rounds_of_one_length_do_not_make_longer_ones_seem_cheap() -> None:
    """Many sequences at once all draft one token, because two are dear: that is not forgotten with the rounds that showed it."""
    costs = RoundCosts()
    for length in (4, 2, 1) * 4 + (1,) * 60:
        costs.update(length, length, 0.1 * length, 1.0 + 0.6 * length)
        remaining = costs.estimates()[1]
    assert remaining[1] - remaining[0] > 0.4


def test_a_token_more_costs_what_it_costs_at_that_length() -> None:
    """Passes grow dearer with each token: to read the second must not look as dear as to read the fifth."""
    rest, costs = {1: 8.2, 2: 9.2, 3: 10.6, 4: 12.2, 5: 14.7}, RoundCosts()
    for length in (1, 2, 2, 2, 3, 2, 1, 3, 2, 4, 2, 5) * 12:
        costs.update(length, length, 0.7 + 0.6 * length, rest[length])
    remaining = costs.estimates()[1]
    found = [after - before for before, after in pairwise(remaining)]
    assert found[:4] == pytest.approx([1.0, 1.4, 1.6, 2.5], abs=0.25)
    assert min(found[4:]) >= found[3] - 0.01


def test_one_more_pass_costs_what_one_more_pass_costs() -> None:
    """The first after the verifier's takes longer: that is a round's, whatever its K."""
    costs = RoundCosts()
    for passes in (1, 2, 3, 4) * 8:
        costs.update(passes + 1, passes, 0.5 + 0.2 * passes, 3.0 + 0.1 * (passes + 1))
    more, remaining = costs.estimates()
    assert more == pytest.approx(0.2, abs=0.03)
    assert remaining[2] == pytest.approx(0.5 + 3.3, abs=0.1)


def test_requests_served_together_draft_what_pays_for_all_of_them() -> None:
    right, wrong, costs = AcceptanceHistory(), AcceptanceHistory(), RoundCosts()
    for length in (4, 2, 1, 1):
        costs.update(length, length, 0.1 * length, 1.0 + 0.02 * length)
    for _ in range(100):
        right.update(8, 8)
        wrong.update(1, 0)
    alone = AdaptiveDraftLength(costs, [right], []).length, AdaptiveDraftLength(costs, [wrong], []).length
    together = AdaptiveDraftLength(costs, [right, wrong, wrong, wrong], []).length
    assert alone == (MAX_DRAFT_LENGTH, 1)
    assert alone[1] <= together <= alone[0]
    ours, theirs = right.expected_tokens(), wrong.expected_tokens()
    speeds = [1 / (0.1 + costs.estimates()[1][0])]
    for position in range(1, MAX_DRAFT_LENGTH):
        seconds = 0.1 * (position + 1) + costs.estimates()[1][position]
        speeds.append((ours[position] + 3 * theirs[position]) / 4 / seconds)
    assert together == 1 + speeds.index(max(speeds))


def test_passes_that_are_made_in_any_case_count_in_full() -> None:
    """Where it cannot be asked whether the last one is wanted, less is drafted."""
    history, costs = AcceptanceHistory(), RoundCosts()
    for length in (4, 2, 1, 1):
        costs.update(length, length, 0.5 * length, 1.0)
    for number in range(200):
        history.update(1, number % 5 == 0)
    assert AdaptiveDraftLength(costs, [history], [], holds_back=True).length == 2
    assert AdaptiveDraftLength(costs, [history], []).length == 1


def test_tokens_and_passes_of_a_round_by_hand() -> None:
    """At a = 1/2 three proposals give 1 + 1/2 + 1/4 tokens; the third is drafted one time in four."""
    assert expected_tokens(0.5, 3) == 1.75
    assert expected_passes(0.5, 3) == 2.25
    assert [expected_passes(a, 1) for a in (0.0, 1.0)] == [1, 1]
    assert expected_passes(1.0, 5) == 5


def striding(
    sure: dict[float, float], shares: dict[float, float], rounds: int = 3000, holds_back: bool = False
) -> tuple[float, float, list[int]]:
    """Tokens a second, of rounds settled by how sure the drafter is and of the best K fixed; and the K of the former.

    Args:
        sure: the chance that a proposal is accepted, by the drafter's confidence.
        shares: how often a proposal has such a confidence.
    """
    drafting, verifying, by_token = 0.15, 1.0, 0.02
    dice, history, costs, chosen = random.Random(1), AcceptanceHistory(), RoundCosts(), []
    known = AcceptanceByConfidence()
    tokens = seconds = 0.0

    def proposal() -> tuple[float, bool]:
        (confidence,) = dice.choices(list(shares), list(shares.values()))
        return confidence, dice.random() < sure[confidence]

    for number in range(rounds):
        chooser, drafted, length = AdaptiveDraftLength(costs, [history], [known], holds_back), [], None
        while length is None:
            drafted.append(proposal())
            length = chooser.stop([[each for each, _ in drafted]])
        accepted = next((position for position, (_, good) in enumerate(drafted) if not good), len(drafted))
        passes = len(drafted)
        if accepted == passes < length:
            drafted.append(proposal())
            accepted, passes = accepted + drafted[-1][1], length
        seconds_spent = passes * drafting, verifying + by_token * length
        examined = min(accepted + 1, passes)
        history.update(examined, accepted)
        known.update([each for each, _ in drafted[:examined]], accepted)
        costs.update(length, passes, *seconds_spent)
        if number >= 100:
            chosen.append(length)
            tokens, seconds = tokens + min(accepted + 1, length), seconds + sum(seconds_spent)
    acceptance = sum(shares[each] * sure[each] for each in shares)
    given = acceptance, drafting, verifying, by_token
    best = max(speed(k, *given, holds_back=holds_back) for k in range(1, MAX_DRAFT_LENGTH + 1))
    return tokens / seconds, best, chosen


@pytest.mark.parametrize("holds_back", [False, True])
def test_a_drafter_that_knows_when_it_is_right_goes_further_when_it_does(holds_back: bool) -> None:
    """Better than any fixed K where its confidence tells, and hardly worse where it does not."""
    knowing, best, lengths = striding({0.1: 0.1, 0.9: 0.95}, {0.1: 0.5, 0.9: 0.5}, holds_back=holds_back)
    assert knowing > 1.1 * best
    assert {1, 2} & set(lengths)
    assert max(lengths) > 4
    blind, best, _ = striding({0.1: 0.5, 0.9: 0.5}, {0.1: 0.5, 0.9: 0.5}, holds_back=holds_back)
    assert blind > 0.97 * best


def test_a_hopeless_drafter_however_sure_settles_at_one() -> None:
    _, _, lengths = striding({0.1: 0.0, 0.9: 0.0}, {0.1: 0.5, 0.9: 0.5}, rounds=400)
    assert set(lengths) == {1}


def test_a_perfect_drafter_however_unsure_goes_as_far_as_it_may() -> None:
    _, _, lengths = striding({0.1: 1.0}, {0.1: 1.0}, rounds=400)
    assert set(lengths) == {MAX_DRAFT_LENGTH}


def test_where_it_has_seen_nothing_it_believes_the_drafter_a_little() -> None:
    known, untouched = AcceptanceByConfidence(), AcceptanceByConfidence().at(0.5)
    assert 0 < known.at(0.0) < known.at(0.3) < known.at(0.6) < known.at(1.0) < 1
    for _ in range(100):
        known.update([0.1], 1)
        known.update([0.95], 0)
    assert known.at(0.1) > 0.9
    assert known.at(0.95) < 0.1
    assert known.at(0.5) == untouched


@pytest.mark.parametrize("a_token", [0.3, 2.0])
@pytest.mark.parametrize("a_pass", [3.0, 8.0])
def test_costs_of_a_batch_are_told_apart_by_sequences_tokens_and_passes(
    a_token: float, a_pass: float
) -> None:
    """Also where rounds of more sequences read more tokens; rounds that were held up say nothing."""
    dice, costs = random.Random(0), BatchCosts()
    for number in range(128):
        most = dice.choice([1, 2, 3, 6])
        lengths = [min(most, dice.choice([1, 1, 2, 3, 6])) for _ in range(dice.randrange(17, 30))]
        sequences, tokens, passes = len(lengths), sum(lengths), max(lengths)
        seconds = (5.0 + 1.5 * sequences + a_token * tokens + a_pass * passes) * dice.uniform(0.98, 1.02)
        costs.update(sequences, tokens, passes, seconds * (20 if number % 40 == 7 else 1))
    rest, found, more = costs.estimates(20)
    assert found == pytest.approx(a_token, rel=0.25, abs=0.25)  # drawn towards what is usual
    assert more == pytest.approx(a_pass, rel=0.25, abs=1.0)
    whole = rest + found * 45 + more * 3
    assert whole == pytest.approx(5.0 + 1.5 * 20 + a_token * 45 + a_pass * 4, rel=0.05)


def test_costs_of_a_batch_are_what_is_usual_before_lengths_have_differed() -> None:
    costs = BatchCosts()
    for _ in range(5):
        costs.update(8, 16, 2, 40.0)
    rest, a_token, a_pass = costs.estimates(8)
    assert 0 < a_token < 40 / 16
    assert 0 < a_pass < 40 / 8
    assert rest + 16 * a_token + a_pass == pytest.approx(40.0)


def test_sequences_with_lengths_of_their_own_draft_as_far_as_each_pays() -> None:
    """What a draft token must be worth is the same for all: the tokens of a round for what it costs, at the best lengths."""
    right, wrong, costs = AcceptanceHistory(), AcceptanceHistory(), BatchCosts()
    for _ in range(100):
        right.update(8, 8)
        wrong.update(1, 0)
    first = OwnDraftLengths(costs, [True, True], [right, wrong], [], (0, 0))
    assert first.stopping() is None  # the opening, at fixed lengths
    for tokens in [8, 4, *range(4, 24)]:
        costs.update(4, tokens, 1 + tokens % 3, 10.0 + tokens + tokens % 3 * 0.5)
    known = [AcceptanceByConfidence() for _ in range(4)]
    chosen = OwnDraftLengths(costs, [True] * 4, [right, wrong, wrong, wrong], known, (0, 0))
    stopping = chosen.stopping()
    assert stopping is not None
    assert chosen.length == MAX_DRAFT_LENGTH
    rest, a_token, a_pass = costs.estimates(4)
    gains = [after - before for before, after in pairwise(right.expected_tokens())]
    bad = [after - before for before, after in pairwise(wrong.expected_tokens())]
    speeds = [
        (4 + sum(gains[:own]) + 3 * sum(bad[:others]))
        / (rest + a_token * (4 + own + 3 * others) + a_pass * max(own, others))
        for own in range(MAX_DRAFT_LENGTH)
        for others in range(MAX_DRAFT_LENGTH)
    ]
    assert stopping.needed == pytest.approx([max(speeds) * a_token] * (MAX_DRAFT_LENGTH - 1))
    assert stopping.needed_together == pytest.approx(max(speeds) * a_pass)
    assert stopping.accepted == [each.rates for each in known]


def test_a_round_that_is_to_be_over_soon_drafts_one_token() -> None:
    short = OneDraftToken()
    assert (short.length, short.stopping(), short.stop([[0.9]])) == (1, None, 1)
