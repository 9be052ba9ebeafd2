"""Recorded comparisons as values of the tab Compare: the lines of their runs, and the settings that write them again."""

from __future__ import annotations

from typing import Any

from specviz.analysis.recorded_runs import Comparison, RecordedRuns
from specviz.app.components.compare_view import panes_value
from specviz.app.link import Pane
from specviz.app.running import error_line
from specviz.app.tabs.generate import form_of
from specviz.errors import TraceError
from specviz.schema.settings import AUTO
from specviz.schema.trace import Run
from specviz.serving.limits import Limits
from specviz.serving.lines import record, table_line, tagged
from specviz.serving.offer import default_pair


def recorded_lines(shelf: RecordedRuns, told: Comparison) -> str:
    """The lines of a recorded comparison for the view, or the line of an error."""
    try:
        runs = [shelf.load(pane.run) for pane in told.panes]
    except TraceError as error:
        return error_line(str(error))
    lines = [record("recorded", key=told.key, machine=told.machine), record("compare", panes=len(runs))]
    lines += [tagged(at, line) for at, run in enumerate(runs) for line in run.lines()]
    quality, seconds = [pane.quality for pane in told.panes], [pane.seconds for pane in told.panes]
    return "".join([*lines, table_line(runs, quality, seconds=seconds)])


def recorded_settings(shelf: RecordedRuns, told: Comparison, limits: Limits) -> dict[str, Any]:
    """The settings of the tab that write a recorded comparison live, by the names of a `Request`, "pair" and "panes"."""
    runs = [shelf.load(pane.run) for pane in told.panes]
    shared = form_of(runs[0], limits)
    pair = shared.get("pair", default_pair())
    return shared | {"pair": pair, "panes": panes_value([_pane(run, pair) for run in runs])}


def _pane(run: Run, shared: str) -> Pane:
    return Pane(run.method, run.lenience, run.draft_length or AUTO, None if run.pair == shared else run.pair)
