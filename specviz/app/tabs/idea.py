"""The tab The idea: a recorded race."""

from __future__ import annotations

import gradio as gr

from specviz.analysis.recorded_runs import INSPECTED, read_recorded_runs
from specviz.app.components.race import Race, race_value
from specviz.app.recorded import recorded_value
from specviz.app.running import QUIET
from specviz.app.tabs.generate import Generate
from specviz.errors import SpecvizError


def wire_idea(race: Race, generate: Generate, tabs: gr.Tabs) -> None:
    """Let the race open the tab One run: at a rejected draft token, or for the visitor's own prompt."""

    def explain(event: gr.SelectData) -> tuple[str, gr.Tabs]:
        index = event.index if isinstance(event.index, int) else 0
        return recorded_value(generate.recordings, INSPECTED, show=index), gr.Tabs(selected="generate")

    race.select(explain, None, [generate.view, tabs], **QUIET)
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
