"""The tab Speed or quality: a pair's quality against cost, from a recorded or a live sweep. A point opens its texts."""

from __future__ import annotations

import gradio as gr
from gradio.components import Component

from specviz.analysis.sweep.folder import Recorded
from specviz.app.components.figure_view import FigureView
from specviz.app.components.point_card import PointCard
from specviz.app.figures.tradeoff import COSTS, DARK, QUALITIES
from specviz.app.running import QUIET, wire_run
from specviz.app.tabs.compare import Compare
from specviz.app.tabs.tradeoff_controls import sweep_controls
from specviz.app.tabs.tradeoff_events import TradeoffEvents
from specviz.serving.service import Service

PREFIX = "tradeoff-"


def tradeoff_tab(
    page: gr.Blocks, service: Service, compare: Compare, tabs: gr.Tabs, recorded: Recorded | None
) -> Component:
    """Build the tab's content. It shows `recorded` at first; a chosen text opens in `compare`, one of the `tabs`.

    Returns the pair dropdown of a live sweep.
    """
    events = TradeoffEvents(service, compare, recorded)
    showing = gr.State(events.start)
    with gr.Row():
        x = _axis("Cost (x)", COSTS, events.start.x, "tradeoff-x")
        y = _axis("Quality (y)", QUALITIES, events.start.y, "tradeoff-y")
        temperature = gr.Radio(
            [(f"{each:g}", each) for each in events.temperatures],
            value=events.start.temperature if recorded else None,
            label="Temperature",
            elem_id="tradeoff-temperature",
            visible=recorded is not None,
        )
    with gr.Row(elem_id="tradeoff-stage"):
        view = FigureView(events.first(), dark=DARK, elem_id="tradeoff-figure")
        card = PointCard(elem_id="tradeoff-card")
    back = gr.Button("Show the recorded sweep", size="sm", visible=False, elem_id="tradeoff-recorded")
    with gr.Accordion("Sweep it yourself", open=False):
        buttons, inputs = sweep_controls(PREFIX)

    for axis in (x, y):
        axis.input(events.redraw, [showing, x, y], view, **QUIET)
    temperature.input(events.set_temperature, [showing, temperature], [view, card], **QUIET)
    back.click(events.show_recorded, showing, [view, temperature, back, card], **QUIET)
    view.select(events.choose, showing, card, **QUIET)
    opened = [*compare.outputs, tabs, compare.go]
    card.select(events.open_in_compare, [showing, compare.go], opened, **QUIET)
    wire_run(
        page,
        lambda stop, progress, visitor, given: (
            dict(zip([view, temperature, back, card], found, strict=True))
            for found in events.run(stop, progress, visitor, *given.values())
        ),
        triggers=[buttons[0].click],
        buttons=buttons,
        inputs={"showing": showing, **{str(at): each for at, each in enumerate(inputs)}},
        view=view,
        more_outputs=[temperature, back, card],
    )
    return inputs[0]


def _axis(label: str, offered: dict[str, str], chosen: str, elem_id: str) -> gr.Dropdown:
    choices = [(title, name) for name, title in offered.items()]
    return gr.Dropdown(choices, value=chosen, label=label, filterable=False, elem_id=elem_id, min_width=240)
