"""What the tab Speed or quality begins with is drawn once for each version of the figure and of its sweep."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from specviz.analysis.sweep.folder import SHELF, SweepFolder, shown_sweep
from specviz.app.tabs.tradeoff_controls import cost_presets
from specviz.app.tabs.tradeoff_events import TradeoffEvents


def test_the_first_figure_is_cached_until_its_sweep_or_its_version_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path / "cache"))
    recorded = shown_sweep()
    assert recorded is not None
    events = TradeoffEvents(None, None, recorded, cost_presets(recorded.costs))  # type: ignore[arg-type]
    drawn = events.drawn(events.start)
    assert events.first() == drawn
    monkeypatch.setattr(TradeoffEvents, "drawn", lambda *_: "drawn anew")
    assert events.first() == drawn
    with monkeypatch.context() as now:
        now.setattr("specviz.app.tabs.tradeoff_events.FIGURE_VERSION", "another")
        assert events.first() == "drawn anew"
    other = shutil.copytree(SHELF, tmp_path / "sweep")
    with (other / "timings.jsonl").open("a") as file:
        file.write("\n")
    events._recorded = replace(recorded, folder=SweepFolder(other))
    assert events.first() == "drawn anew"
