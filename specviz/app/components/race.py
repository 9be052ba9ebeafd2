"""The race that the page opens with: two recorded runs of one text on one clock, drawn by `static/race/`."""

from __future__ import annotations

import json

from specviz.analysis.lanes import lane
from specviz.analysis.recorded_runs import RACERS, RecordedRuns
from specviz.app.components.scripted_html import ScriptedHTML, style, template
from specviz.core.methods import METHODS


class Race(ScriptedHTML):
    """Plays a race when it is shown, and again on demand.

    `race_value` makes the value; "" shows that no race was recorded. A `select` event asks why a draft token was rejected; its `index` is
    that of the replacement in the drafted run. A `play` event asks to run the visitor's own prompt.
    """

    TEMPLATE = template("race/race")
    CSS = style(("shared/shared", "race/race"))
    MODULE = "race/race"


def race_value(shelf: RecordedRuns) -> str:
    """The value for the recorded race; raises TraceError if one of its runs is missing or invalid."""
    if shelf.race is None:
        return ""
    alone, drafted = map(shelf.load, RACERS)
    about = {"machine": shelf.machine, "method": METHODS[drafted.method].title}
    counts = {"prompts": shelf.race.prompts, "repetitions": shelf.race.repetitions}
    return json.dumps(about | counts | {"alone": lane(alone), "drafted": lane(drafted)}, ensure_ascii=False)
