"""The tab The idea: what the page is about, as a race that was recorded. Needs no model and draws nothing itself."""

from __future__ import annotations

from specviz.analysis.recorded_runs import read_recorded_runs
from specviz.app.components.race import Race, race_value
from specviz.errors import SpecvizError


def idea_tab() -> Race:
    """Build the tab's content, inside the caller's `gr.Tab`; what its two events ask for is the caller's to do."""
    try:
        value = race_value(read_recorded_runs())
    except SpecvizError:
        value = ""  # the page is whole without it
    return Race(value, elem_id="race")
