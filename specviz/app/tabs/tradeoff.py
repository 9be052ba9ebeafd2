"""The tab Speed or quality: recorded sweeps or the visitor's own, and the texts behind each point."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import gradio as gr
from gradio.components import Component

from specviz.analysis.sweep.results import Results
from specviz.app.components.sweep_view import SweepView
from specviz.app.controls import drawer
from specviz.app.running import QUIET, wire_run
from specviz.app.tabs.compare import Compare
from specviz.app.tabs.tradeoff_controls import sweep_controls
from specviz.app.tabs.tradeoff_events import Live, TradeoffEvents
from specviz.serving.service import Service

PREFIX = "tradeoff-"


def tradeoff_tab(
    page: gr.Blocks, service: Service, compare: Compare, tabs: gr.Tabs, recorded: Mapping[str, Results]
) -> Component:
    """Build the tab's content. It opens on the first of `recorded`. Texts open in `compare`, which is one of the `tabs`.

    Returns the pair dropdown of a live sweep.
    """
    events, live = TradeoffEvents(service, recorded), gr.State(Live())
    view = SweepView(events.shown(0), card=events.first_card(), elem_id="tradeoff-view")
    own: Any = SimpleNamespace(elem_id="tradeoff-own", click=view.own)  # a button within the view
    with drawer("tradeoff-drawer", own):
        buttons, controls = sweep_controls(PREFIX)

    def open_text(now: Live, starts: int, event: gr.EventData) -> list[Any]:
        """Updates for Compare's settings, the selected tab, and the number that starts a run."""
        return [*compare.updates(events.text(now, event)), gr.Tabs(selected="compare"), starts + 1]

    # A reader may click faster than answers come: the browser drops cards of other points and shows the sweep that was requested last.
    view.choose(events.choose, live, view, trigger_mode="multiple", **QUIET)
    view.show(events.show, live, view, trigger_mode="always_last", **QUIET)
    opened = [*compare.outputs, tabs, compare.go]
    view.open(open_text, [live, compare.go], opened, **QUIET)
    wire_run(
        page,
        lambda *asked: ({view: value} for value in events.run(*asked)),
        triggers=[buttons[0].click],
        buttons=buttons,
        inputs={"live": live, **controls},
        view=view,
    )
    return controls["pair"]
