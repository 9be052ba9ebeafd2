"""Recorded measurements of what drafting costs and gains."""

from __future__ import annotations

import pytest

from specviz.analysis.payoff import measurements, split_cost


@pytest.mark.parametrize(("check", "rest"), [(0.0, 0.0), (0.2, 0.1), (0.05, 0.0)])
def test_a_round_costs_its_pass_its_drafts_and_two_more_parts(check: float, rest: float) -> None:
    rounds = [(k, 1 + 0.1 * k + check * (k - 1) + rest) for k in (1, 2, 4, 8)]
    assert split_cost(rounds, 0.1) == pytest.approx((check, rest))


def test_at_one_draft_length_checking_takes_all_that_is_left() -> None:
    assert split_cost([(3, 1.7)], 0.1) == pytest.approx((0.2, 0.0))


def test_no_part_of_a_cost_is_below_nothing() -> None:
    assert min(split_cost([(1, 1.05), (4, 1.2)], 0.1)) == 0.0
    assert min(split_cost([(1, 1.5), (4, 1.4)], 0.1)) == 0.0


def test_every_recorded_measurement_can_be_drawn_and_the_embedded_pair_opens() -> None:
    found = measurements()
    assert found[0].title == "T = 0: SmolLM2 drafter 17M → SmolLM2-135M-Instruct"
    assert len({each.title for each in found}) == len(found), "a link names a measurement by its title"
    for each in found:
        assert 0 <= each.kept <= 1
        assert min(each.draft, each.check, each.rest) >= 0
        assert each.speed_ups
        assert all(one.low <= one.value <= one.high for one in each.speed_ups)
