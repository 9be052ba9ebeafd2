"""The tab Speed or quality: quality against cost for a pair, point by point down to the texts, recorded or swept live.

Has the components and wires them; what their events do is the business of `tradeoff_events`.
"""

from __future__ import annotations

import gradio as gr
from gradio.components import Component

from specviz.analysis.sweep.folder import Recorded
from specviz.app.components.figure_view import FigureView
from specviz.app.components.point_card import PointCard
from specviz.app.figures.tradeoff import COSTS, DARK, QUALITIES
from specviz.app.running import QUIET, wire_run
from specviz.app.tabs.compare import Compare
from specviz.app.tabs.tradeoff_controls import cost_controls, cost_presets, sweep_controls
from specviz.app.tabs.tradeoff_events import TradeoffEvents
from specviz.serving.service import Service

PREFIX = "tradeoff-"


def tradeoff_tab(
    page: gr.Blocks, service: Service, compare: Compare, tabs: gr.Tabs, recorded: Recorded | None
) -> Component:
    """Build the tab's content: `recorded` is shown at once; a chosen text is opened in `compare`, one of the `tabs`.

    Returns the pair of a sweep of one's own.
    """
    presets = cost_presets(recorded.costs if recorded else None)
    events = TradeoffEvents(service, compare, recorded, presets)
    showing = gr.State(events.start)
    x, y, temperature = _axes(events)
    costs, preset, sliders = cost_controls(presets)
    with gr.Row(elem_id="tradeoff-stage"):
        view = FigureView(events.first(), dark=DARK, elem_id="tradeoff-figure")
        card = PointCard(elem_id="tradeoff-card")
    back = gr.Button("Show the recorded sweep", size="sm", visible=False, elem_id="tradeoff-recorded")
    with gr.Accordion("Sweep it yourself", open=False):
        buttons, inputs = sweep_controls(PREFIX)

    # The figure.
    settings = [showing, x, y, *sliders]
    for axis in (x, y):
        axis.input(events.redraw, settings, [view, costs], **QUIET)
    for slider in sliders:
        outputs = [view, costs, preset]
        slider.input(events.redraw_own, settings, outputs, trigger_mode="always_last", **QUIET)
    preset.input(events.set_preset, [showing, preset], [*sliders, view], **QUIET)
    # The chosen point, and the text of it that is opened.
    temperature.input(events.set_temperature, [showing, temperature], [view, card], **QUIET)
    back.click(events.show_recorded, showing, [view, temperature, back, card], **QUIET)
    view.select(events.choose, showing, card, **QUIET)
    opened = [*compare.settings.values(), *compare.pane_outputs, tabs, compare.go]
    card.select(events.open_in_compare, [showing, compare.go], opened, **QUIET)
    wire_run(
        page,
        events.run,
        triggers=[buttons[0].click],
        buttons=buttons,
        inputs=[showing, *inputs],
        view=view,
        more_outputs=[temperature, back, card],
        check=lambda _, key, *__: service.check_pair(key),
    )
    return inputs[0]


def _axes(events: TradeoffEvents) -> tuple[gr.Dropdown, gr.Dropdown, gr.Radio]:
    offered = events.temperatures
    with gr.Row():
        x = _axis("Cost (x)", COSTS, events.start.x, "tradeoff-x")
        y = _axis("Quality (y)", QUALITIES, events.start.y, "tradeoff-y")
        temperature = gr.Radio(
            [(f"{each:g}", each) for each in offered],
            value=events.start.temperature if offered else None,
            label="Temperature",
            elem_id="tradeoff-temperature",
            visible=bool(offered),
        )
    return x, y, temperature


def _axis(label: str, offered: dict[str, str], chosen: str, elem_id: str) -> gr.Dropdown:
    choices = [(title, name) for name, title in offered.items()]
    return gr.Dropdown(choices, value=chosen, label=label, filterable=False, elem_id=elem_id, min_width=240)
