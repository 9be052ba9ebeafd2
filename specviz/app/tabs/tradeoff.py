"""The tab Speed or quality: recorded sweeps or the visitor's own, and the texts behind each point."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import gradio as gr
from gradio.components import Component

from specviz.analysis.sweep.results import Results
from specviz.app.components.sweep_view import SweepView
from specviz.app.controls import drawer, pair_dropdown, run_buttons
from specviz.app.running import QUIET, wire_run
from specviz.app.settings import CONTROLS
from specviz.app.tabs.compare import Compare
from specviz.app.tabs.tradeoff_events import MAX_METHODS, Live, TradeoffEvents
from specviz.core.methods import METHODS
from specviz.serving.service import Service

PREFIX = "tradeoff-"
POINTS, ITEMS = (2, 5), (8, 32)
"""Range of leniences per method; range of questions. The largest sweep takes minutes on two cores."""


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
        controls = _sweep_controls()
        buttons = run_buttons(PREFIX)

    def open_text(now: Live, request: gr.Request, event: gr.EventData) -> list[Any]:
        """Updates that show the chosen text's settings in Compare: settings, view and tab."""
        updates = compare.updates(events.text(now, event))
        compare.drop(request)
        return [*updates, gr.Tabs(selected="compare")]

    # A reader may click faster than answers come: the browser drops cards of other points and shows the sweep that was requested last.
    view.choose(events.choose, live, view, trigger_mode="multiple", **QUIET)
    view.show(events.show, live, view, trigger_mode="always_last", **QUIET)
    compare.run_after(view.open(open_text, live, [*compare.outputs, tabs], **QUIET))
    wire_run(
        page,
        events.run,
        triggers=[buttons[0].click],
        buttons=buttons,
        inputs={"live": live, **controls},
        view=view,
    )
    return controls["pair"]


def _sweep_controls() -> dict[str, Component]:
    """The arguments of `plan_of`, by name."""
    offered = [(method.title, name) for name, method in METHODS.items() if method.has_lenience]
    heat = CONTROLS["temperature"]
    low, high = heat.offered
    controls: dict[str, Component] = {}
    with gr.Row():
        with gr.Column(min_width=280):
            controls["pair"] = pair_dropdown(PREFIX)
            controls["methods"] = gr.CheckboxGroup(
                offered,
                value=["speed", "cascade_tokenV3"],
                label="Methods",
                info=f"At most {MAX_METHODS}; both models alone are always swept too.",
                elem_id="tradeoff-methods",
            )
        with gr.Column(min_width=280):
            controls["points"] = gr.Slider(
                *POINTS, 3, step=1, label="Leniences per method", elem_id="tradeoff-points"
            )
            controls["temperature"] = gr.Slider(
                low, high, 0.5, step=heat.step, label="Temperature", elem_id="tradeoff-heat"
            )
            controls["limit"] = gr.Slider(
                *ITEMS, ITEMS[0], step=4, label="Questions", elem_id="tradeoff-limit"
            )
    return controls
