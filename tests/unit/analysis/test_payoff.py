"""Recorded measurements of what drafting costs and gains."""

from __future__ import annotations

from pathlib import Path

import pytest

from specviz.analysis import payoff
from specviz.analysis.payoff import measurements, split_cost


def test_a_round_costs_its_pass_its_drafts_and_two_more_parts() -> None:
    for costs, *parts in (
        ({k: 1 + 0.1 * k + 0.2 * (k - 1) + 0.1 for k in (1, 2, 4, 8)}, 0.2, 0.1),
        ({3: 1.7}, 0.2, 0.0),  # at one draft length, checking takes all that is left
        ({1: 1.8}, 0.0, 0.7),  # at K = 1 nothing more is checked
        ({1: 1.05, 4: 1.2}, 0.0, 0.0),  # no part is below 0
        ({1: 1.5, 4: 1.4}, 0.0, 0.2),
    ):
        assert split_cost(costs.items(), 0.1) == pytest.approx(tuple(parts))


def test_a_damaged_report_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "published.json").write_text("[]")
    (tmp_path / "damaged.json").write_text('{"pairs": [{}]}')
    monkeypatch.setattr(payoff, "FOLDER", tmp_path)
    monkeypatch.setattr(payoff, "shown_sweeps", dict)
    assert measurements.__wrapped__() == ()
