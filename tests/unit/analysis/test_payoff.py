"""Recorded measurements of what drafting costs and gains."""

from __future__ import annotations

from pathlib import Path

import pytest

from specviz.analysis import payoff
from specviz.analysis.payoff import measurements, split_cost


@pytest.mark.parametrize(
    ("costs", "check", "rest"),
    [
        ({k: 1 + 0.1 * k + 0.2 * (k - 1) + 0.1 for k in (1, 2, 4, 8)}, 0.2, 0.1),
        ({3: 1.7}, 0.2, 0.0),  # at one draft length, checking takes all that is left
        ({1: 1.05, 4: 1.2}, 0.0, 0.0),  # no part is below 0
        ({1: 1.5, 4: 1.4}, 0.0, 0.2),
    ],
)
def test_a_round_costs_its_pass_its_drafts_and_two_more_parts(
    costs: dict[int, float], check: float, rest: float
) -> None:
    assert split_cost(costs.items(), 0.1) == pytest.approx((check, rest))


def test_every_recorded_measurement_can_be_drawn_and_the_embedded_pair_opens() -> None:
    found = measurements()
    assert found[0].title == "T = 0: SmolLM2 drafter 17M → SmolLM2-135M-Instruct"
    assert len({each.title for each in found}) == len(found), "a link names a measurement by its title"
    for each in found:
        assert 0 <= each.kept <= 1
        assert min(each.draft, each.check, each.rest) >= 0
        assert each.speed_ups
        assert all(one.low <= one.value <= one.high for one in each.speed_ups)


def test_a_damaged_report_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "published.json").write_text("[]")
    (tmp_path / "damaged.json").write_text('{"pairs": [{}]}')
    monkeypatch.setattr(payoff, "FOLDER", tmp_path)
    monkeypatch.setattr(payoff, "shown_sweeps", dict)
    assert measurements.__wrapped__() == ()
