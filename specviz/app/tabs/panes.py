"""Recorded comparisons as values of the tab Compare: the lines of their runs, and the settings that write them again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from specviz.analysis.recorded_runs import Comparison, read_recorded_runs
from specviz.app.components.compare_view import panes_value
from specviz.app.link import Pane
from specviz.app.tabs.generate import form_of
from specviz.schema.settings import AUTO
from specviz.schema.trace import Run
from specviz.serving.limits import Limits
from specviz.serving.lines import record, table_line, tagged
from specviz.serving.offer import default_pair


@dataclass(frozen=True)
class RecordedComparison:
    """A recorded comparison for the tab.

    Attributes:
        settings: the settings that write it live: those of a `Request` by name, "pair" and "panes".
        lines: the view's value.
    """

    key: str
    title: str
    settings: dict[str, Any]
    lines: str


def recorded_comparisons(limits: Limits) -> dict[str, RecordedComparison]:
    """The recorded comparisons by key, in order."""
    shelf = read_recorded_runs()
    found = {}
    for told in shelf.comparisons:
        runs = [shelf.load(pane.run) for pane in told.panes]
        settings, lines = _settings(runs, limits), _lines(told, runs)
        found[told.key] = RecordedComparison(told.key, told.title, settings, lines)
    return found


def _lines(told: Comparison, runs: list[Run]) -> str:
    lines = [
        record("recorded", key=told.key, machine=told.machine, note=told.note),
        record("compare", panes=len(runs)),
    ]
    lines += [tagged(at, line) for at, run in enumerate(runs) for line in run.lines()]
    quality, seconds = [pane.quality for pane in told.panes], [pane.seconds for pane in told.panes]
    return "".join([*lines, table_line(runs, quality, seconds=seconds)])


def _settings(runs: list[Run], limits: Limits) -> dict[str, Any]:
    shared = form_of(runs[0], limits)
    pair = shared.get("pair", default_pair())
    return shared | {"pair": pair, "panes": panes_value([_pane(run, pair) for run in runs])}


def _pane(run: Run, shared: str) -> Pane:
    return Pane(run.method, run.lenience, run.draft_length or AUTO, None if run.pair == shared else run.pair)
