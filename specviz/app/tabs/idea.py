"""The tab The idea: a recorded race."""

from __future__ import annotations

from typing import Any

import gradio as gr

from specviz.analysis.recorded_runs import INSPECTED, read_recorded_runs
from specviz.app.components.race import Race, race_value
from specviz.app.recorded import recorded_value
from specviz.app.running import QUIET
from specviz.app.tabs.generate import Generate, fill, form_of
from specviz.errors import SpecvizError
from specviz.serving.limits import Limits


def wire_idea(race: Race, generate: Generate, tabs: gr.Tabs, limits: Limits) -> None:
    """Let the race open the tab One run: at a rejected draft token, or for the visitor's own prompt."""

    def explain(event: gr.SelectData) -> list[Any]:
        index = event.index if isinstance(event.index, int) else 0
        values = form_of(generate.recordings.load(INSPECTED), limits)
        shown = recorded_value(generate.recordings, INSPECTED, show=index)
        return [shown, INSPECTED, gr.Tabs(selected="generate"), *fill(generate.settings, values)]

    race.select(explain, None, [generate.view, generate.examples, tabs, *generate.settings.values()], **QUIET)
    opened = race.play(lambda: gr.Tabs(selected="generate"), None, tabs, **QUIET)
    focus = '() => setTimeout(() => document.querySelector("#prompt textarea").select(), 100)'
    opened.then(None, None, None, js=focus, **QUIET)


def idea_tab() -> Race:
    """Build the tab's content, inside the caller's `gr.Tab`."""
    try:
        value = race_value(read_recorded_runs())
    except SpecvizError:
        value = ""  # the page works without the race
    return Race(value, elem_id="race")
