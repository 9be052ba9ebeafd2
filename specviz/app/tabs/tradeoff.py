"""The tab Speed or quality: quality against cost for a pair, point by point down to the texts, recorded or swept live.

Has the components and wires them; what their events do is the business of `tradeoff_events`.
"""

from __future__ import annotations

import gradio as gr

from specviz.analysis.sweep.folder import Recorded
from specviz.app.components.figure_view import FigureView
from specviz.app.figures.tradeoff import COSTS, DARK, QUALITIES
from specviz.app.running import QUIET, wire_run
from specviz.app.tabs.compare import Compare
from specviz.app.tabs.tradeoff_controls import cost_controls, cost_presets, sweep_controls
from specviz.app.tabs.tradeoff_events import TradeoffEvents
from specviz.serving.service import Service

PREFIX = "tradeoff-"

INTRODUCTION = """Each point is a method at one lenience: how good its texts are, and what they cost. Up is better, left \
is cheaper; bars are 95% intervals; a star beats both models alone. Choose a point to read its texts."""


def tradeoff_tab(
    page: gr.Blocks, service: Service, compare: Compare, tabs: gr.Tabs, recorded: Recorded | None
) -> None:
    """Build the tab's content: `recorded` is shown at once; a chosen text is opened in `compare`, one of the `tabs`."""
    presets = cost_presets(recorded.costs if recorded else None)
    events = TradeoffEvents(service, compare, recorded, presets)
    gr.Markdown(INTRODUCTION, elem_id="tradeoff-about")
    showing = gr.State(events.start)
    x, y, temperature = _axes(events)
    costs, preset, sliders = cost_controls(presets)
    view = FigureView(events.drawn(events.start), dark=DARK, elem_id="tradeoff-figure")
    back = gr.Button("Show the recorded sweep", size="sm", visible=False, elem_id="tradeoff-recorded")
    numbers = gr.Markdown(visible=False, elem_id="tradeoff-numbers")
    table = _texts_table()
    into_compare = gr.Button("Open in Compare", visible=False, interactive=False, elem_id="tradeoff-open")
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
    # The chosen point, its texts, and the chosen text.
    details = [numbers, table, into_compare]
    temperature.input(events.set_temperature, [showing, temperature], [view, *details], **QUIET)
    back.click(events.show_recorded, showing, [view, temperature, back, *details], **QUIET)
    view.select(events.choose, showing, details, **QUIET)
    table.select(events.choose_text, showing, into_compare, **QUIET)
    opened = [*compare.settings.values(), *compare.pane_outputs, tabs, compare.go]
    into_compare.click(events.open_in_compare, [showing, compare.go], opened, **QUIET)
    wire_run(
        page,
        events.run,
        triggers=[buttons[0].click],
        buttons=buttons,
        inputs=[showing, *inputs],
        view=view,
        more_outputs=[temperature, back, *details],
    )


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


def _texts_table() -> gr.Dataframe:
    return gr.Dataframe(
        headers=["#", "Prompt", "This point", "Verifier only", "Drafter only"],
        datatype="str",
        type="array",
        interactive=False,
        wrap=True,
        max_height=420,
        column_widths=["48px", "280px", "290px", "290px", "290px"],
        visible=False,
        label="Texts of this point: ✓ right, ✗ wrong. Choose one to see how it came about.",
        elem_id="tradeoff-texts",
    )
