"""The tab Compare methods: two to four runs of one pair, prompt and seed, side by side in one view."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr

from specviz.app.components.trace_view import CompareView
from specviz.app.controls import (
    check_rule,
    example_buttons,
    keep_address,
    link_button,
    pair_dropdown,
    prompt_box,
    request_settings,
    rule_field,
    run_buttons,
    sampling_controls,
    wire_form,
    wire_penalty,
)
from specviz.app.link import PANES
from specviz.app.running import QUIET, in_view, wire_run
from specviz.app.tabs.generate import INSPECT
from specviz.app.tabs.panes import PANE, PRESETS, Preset, pane_controls, set_panes, show_columns
from specviz.progress import Progress
from specviz.schema.settings import Request
from specviz.serving.service import Service

PREFIX = "compare-"
TOKENS = 64
"""Initial limit on new tokens; lower than for one run, because four panes take longer."""


@dataclass(frozen=True)
class Compare:
    """The tab's components that other modules read and set. Setting `go` to a new number starts a run."""

    settings: dict[str, Any]
    """The settings that all panes share, by the names of a `Request`; the pair comes first."""
    pane_inputs: list[Any]
    """The number of panes, then the settings of each pane."""
    columns: list[gr.Column]
    go: gr.State

    @property
    def pane_outputs(self) -> list[Any]:
        """The outputs for the updates of `set_panes`."""
        return [*self.pane_inputs, *self.columns]


def compare_tab(page: gr.Blocks, service: Service) -> Compare:
    """Build the tab's content, inside the caller's `gr.Tab`."""
    tab, presets, alone = _controls(service)
    with gr.Row(elem_classes="specviz-actions"):
        buttons = run_buttons(PREFIX)
        link_button("compare", tab.settings, PREFIX)
    view = CompareView(elem_id="compare-view")
    count = tab.pane_inputs[0]
    count.input(show_columns, count, tab.columns, **QUIET)
    for button, preset in zip(presets, PRESETS, strict=True):
        outputs = [*tab.pane_outputs, tab.settings["temperature"], tab.settings["prompt"]]
        button.click(partial(_chosen, preset), None, outputs, **QUIET)
    wire_form(tab.settings, PREFIX)
    wire_penalty(tab.settings)

    names = [f"pane input {at}" for at in range(len(tab.pane_inputs))]

    def lines(
        stop: threading.Event, progress: Progress, visitor: str, given: dict[str, Any]
    ) -> Iterator[str]:
        measure, count, *panes = (given.pop(name) for name in ("alone", *names))
        service.check_pair(given["pair"])
        check_rule(given, panes[: len(PANE) * int(count) : len(PANE)])
        key, requests = given.pop("pair"), _requests(given, count, *panes)
        return service.compare_lines(key, requests, stop, progress, measure_alone=measure, visitor=visitor)

    triggers = [buttons[0].click, tab.settings["prompt"].submit, tab.go.change]
    keep_address("compare", tab.settings, triggers)
    wire_run(
        page,
        partial(in_view, view, lines),
        triggers=triggers,
        buttons=buttons,
        inputs={"alone": alone, **tab.settings, **dict(zip(names, tab.pane_inputs, strict=True))},
        view=view,
    )
    return tab


def _controls(service: Service) -> tuple[Compare, list[gr.Button], gr.Checkbox]:
    """The tab's components, the buttons of the presets, and the checkbox for measuring each pane alone."""
    with gr.Row(elem_id="compare-presets"):
        presets = [gr.Button(preset.title, size="sm", scale=0) for preset in PRESETS]
    with gr.Row():
        with gr.Column(scale=3, min_width=320):
            prompt = prompt_box(PREFIX, lines=2)
            with gr.Row():
                example_buttons(prompt)
        with gr.Column(scale=2, min_width=320):
            pair = pair_dropdown(PREFIX)
            with gr.Accordion("Sampling, seed", open=False):
                sampling = sampling_controls(service.limits, PREFIX, TOKENS)
    start = PRESETS[0].panes
    with gr.Row():
        count = gr.Radio(list(PANES), value=len(start), label="Panes", elem_id="compare-count", scale=1)
        alone = gr.Checkbox(
            True,
            label="Measure each alone too",
            info="Then each pane runs again by itself, to measure its own speed.",
            elem_id="compare-alone",
            scale=3,
        )
    inputs: list[Any] = [count]
    columns = []
    with gr.Row():
        for number, pane in enumerate(start, 1):
            column, controls = pane_controls(number, pane, PREFIX)
            columns.append(column)
            inputs += controls
    rule = rule_field(inputs[1 :: len(PANE)], PREFIX)
    return (
        Compare({"pair": pair, "prompt": prompt, "rule": rule} | sampling, inputs, columns, gr.State(0)),
        presets,
        alone,
    )


def _chosen(preset: Preset) -> list[Any]:
    """Updates for a preset's panes, temperature and prompt."""
    prompt = gr.skip() if preset.prompt is None else preset.prompt
    return [*set_panes(preset.panes), preset.temperature, prompt]


def _requests(shared: dict[str, Any], count: float, *panes: Any) -> list[Request]:
    """A request for each pane; `panes` has method, lenience and draft length of each."""
    own = [dict(zip(PANE, panes[at:], strict=False)) for at in range(0, len(PANE) * int(count), len(PANE))]
    return [Request(inspect=INSPECT, **request_settings({**shared, **each})) for each in own]
