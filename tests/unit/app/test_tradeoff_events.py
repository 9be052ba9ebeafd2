"""The first figure of the tab Speed or quality is drawn once per version of the figure and of its sweep."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from specviz.analysis.sweep.folder import SHELF, SweepFolder, shown_sweep
from specviz.app.tabs.tradeoff_controls import ITEMS, POINTS, plan_of
from specviz.app.tabs.tradeoff_events import TradeoffEvents
from specviz.core.methods import METHODS
from specviz.errors import RequestError


def test_the_first_figure_is_cached_until_its_sweep_or_its_version_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path / "cache"))
    recorded = shown_sweep()
    assert recorded is not None
    events = TradeoffEvents(None, None, recorded)  # type: ignore[arg-type]
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


@pytest.mark.parametrize(
    ("key", "methods", "points", "limit"),
    [
        ("nothing", ["speed"], 3, 8),
        ("embedded", [], 3, 8),
        ("embedded", list(METHODS), 3, 8),
        ("embedded", ["speed"], POINTS[1] + 1, 8),
        ("embedded", ["speed"], 3, ITEMS[1] + 1),
    ],
)
def test_more_than_a_visitor_may_have_is_refused(
    key: str, methods: list[str], points: int, limit: int
) -> None:
    """A page for everybody has bounds that its server holds to, whatever the browser sends."""
    with pytest.raises(RequestError):
        plan_of(key, methods, points, 0.5, limit)
