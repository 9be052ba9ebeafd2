"""The race that the page opens with: two recorded runs of one text, told on one clock.

Knows recorded runs and what of them the browser draws, with `static/race/`; needs no model and computes no figure.
"""

from __future__ import annotations

import json

from specviz.analysis.lanes import lane
from specviz.analysis.recorded_runs import RACERS, RecordedRuns
from specviz.app.components.scripted_html import ScriptedHTML, style, template
from specviz.core.methods import METHODS


class Race(ScriptedHTML):
    """Plays a race by itself, and again when asked.

    The value is that of `race_value`; "" is the race that nobody recorded. `select` events ask why a draft token was
    rejected: `index` counts from 0 over the tokens of the drafted run, `value` is the token in its place. `play` events
    ask for a prompt of one's own.
    """

    TEMPLATE = template("race/race")
    CSS = style(("shared/shared", "race/race"))
    MODULE = "race/race"


def race_value(shelf: RecordedRuns) -> str:
    """The race among recorded runs, for the component.

    Raises:
        TraceError: one of its runs is missing or invalid.
    """
    if shelf.race is None:
        return ""
    alone, drafted = map(shelf.load, RACERS)
    about = {"machine": shelf.machine, "method": METHODS[drafted.method].title}
    counts = {"prompts": shelf.race.prompts, "repetitions": shelf.race.repetitions}
    return json.dumps(about | counts | {"alone": lane(alone), "drafted": lane(drafted)}, ensure_ascii=False)
