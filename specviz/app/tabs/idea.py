"""The tab The idea: a recorded race."""

from __future__ import annotations

from specviz.analysis.recorded_runs import read_recorded_runs
from specviz.app.components.race import Race, race_value
from specviz.errors import SpecvizError


def idea_tab() -> Race:
    """Build the tab's content, inside the caller's `gr.Tab`."""
    try:
        value = race_value(read_recorded_runs())
    except SpecvizError:
        value = ""  # the page works without the race
    return Race(value, elem_id="race")
