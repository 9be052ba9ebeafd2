"""The tab Compare: two to four runs side by side, of one pair, prompt and seed.

Turns what people set into the requests of one batch and streams what comes of them into one view. Knows the service
and the registries; knows no torch and draws nothing itself.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.components import Component

from specviz.app.components.compare_view import CompareView
from specviz.app.controls import (
    EXAMPLES,
    Sampling,
    draft_length_dropdown,
    lenience_slider,
    link_button,
    method_dropdown,
    pair_dropdown,
    prompt_box,
    run_buttons,
    sampling_controls,
)
from specviz.app.link import Pane
from specviz.app.offered import PANES, RANGES
from specviz.app.running import QUIET, wire_run
from specviz.app.tabs.generate import INSPECT
from specviz.core.methods import METHODS
from specviz.progress import Progress
from specviz.schema.settings import Request
from specviz.serving.service import Service

PREFIX = "compare-"
TOKENS = 64
"""Most tokens to write, to begin with: four panes take their time."""


@dataclass(frozen=True)
class Preset:
    """Panes that show one thing, and what else it takes to show it."""

    title: str
    panes: tuple[Pane, ...]
    temperature: float = RANGES["temperature"].start
    prompt: str | None = None


def _pane(method: str, lenience: float | None = None) -> Pane:
    default = METHODS[method].default_lenience
    return Pane(method, default if lenience is None else lenience)


PRESETS = (
    Preset(
        "Lossless or not",
        # Speculative decoding first: the others part from it by their rules. The verifier alone flips other coins.
        (_pane("speed", 0), _pane("speed", 0.5), _pane("cascade_tokenV3", 0), _pane("verifier_only")),
    ),
    Preset(
        "The three token rules",
        (_pane("cascade_tokenV1", 0.3), _pane("cascade_tokenV2", 0.3), _pane("cascade_tokenV3", 0.3)),
    ),
    Preset(
        "Confident drafter",
        (_pane("cascade_chow", 0.5), _pane("cascade_diff", 0.1), _pane("cascade_opt", 0.3)),
        prompt=EXAMPLES["Arithmetic"],
    ),
    Preset(
        "Greedy check",
        (
            _pane("verifier_only"),
            _pane("speed", 0),
            _pane("cascade_chow", 0.5),
            _pane("cascade_tokenV3", 0.5),
        ),
        temperature=0,
    ),
    Preset("Cost of caution", tuple(_pane("cascade_tokenV3", lenience) for lenience in (0.1, 0.5, 0.9))),
)
"""Worth looking at; the first one is set to begin with."""


@dataclass(frozen=True)
class PaneControls:
    """The settings of one pane, in a column that hides with it."""

    column: gr.Column
    method: gr.Dropdown
    lenience: gr.Slider
    draft_length: gr.Dropdown

    @property
    def components(self) -> list[Component]:
        """Method, lenience, draft length."""
        return [self.method, self.lenience, self.draft_length]


@dataclass(frozen=True)
class Compare:
    """The tab's parts that others may speak to; a run starts whenever the number in `go` changes."""

    pair: gr.Dropdown
    prompt: gr.Textbox
    sampling: Sampling
    count: gr.Radio
    panes: tuple[PaneControls, ...]
    go: gr.State

    @property
    def settings(self) -> dict[str, Component]:
        """What all panes share, by the names of a `Request`; the pair comes first."""
        return {"pair": self.pair, "prompt": self.prompt} | self.sampling.settings

    @property
    def pane_inputs(self) -> list[Component]:
        """The number of panes, then the settings of each."""
        return [self.count, *(each for pane in self.panes for each in pane.components)]

    @property
    def pane_outputs(self) -> list[Any]:
        """What `set_panes` sets."""
        return [*self.pane_inputs, *(pane.column for pane in self.panes)]


def set_panes(panes: tuple[Pane, ...]) -> list[Any]:
    """Updates that show these panes and no others."""
    filled = [*panes, *(PRESETS[0].panes[len(panes) :])]
    settings: list[Any] = []
    for pane in filled:
        settings += [pane.method, lenience_slider(pane.method, pane.lenience), pane.draft_length]
    return [len(panes), *settings, *_columns(len(panes))]


def _columns(count: int) -> list[Any]:
    return [gr.Column(visible=place < count) for place in range(PANES[-1])]


def compare_tab(page: gr.Blocks, service: Service, methods: dict[str, dict[str, Any]]) -> Compare:
    """Build the tab's content; `methods` is what the view says of each method."""
    with gr.Row():
        with gr.Column(scale=3, min_width=320):
            prompt = prompt_box(PREFIX)
        with gr.Column(scale=2, min_width=320):
            pair = pair_dropdown(PREFIX)
            with gr.Accordion("Sampling, seed", open=False):
                sampling = sampling_controls(service.limits, PREFIX, TOKENS)
    with gr.Row(elem_id="compare-presets"):
        presets = [gr.Button(preset.title, size="sm", min_width=140) for preset in PRESETS]
    start = PRESETS[0].panes
    with gr.Row():
        count = gr.Radio(list(PANES), value=len(start), label="Panes", elem_id="compare-count", scale=1)
        alone = gr.Checkbox(
            True,
            label="Measure each alone too",
            info="After the batch, each pane again by itself: speeds that are nobody else’s.",
            elem_id="compare-alone",
            scale=3,
        )
    with gr.Row():
        panes = tuple(_pane_controls(place, pane) for place, pane in enumerate(start))
    buttons = run_buttons(PREFIX)
    tab = Compare(pair, prompt, sampling, count, panes, gr.State(0))
    link_button("compare", tab.settings, tab.pane_inputs, PREFIX)
    view = CompareView(methods=methods, elem_id="compare-view")

    shared = list(tab.settings)[1:]

    def lines(
        stop: threading.Event, progress: Progress, visitor: str, measure: bool, key: str, *values: Any
    ) -> Iterator[str]:
        common = dict(zip(shared, values, strict=False))
        number, *settings = values[len(shared) :]
        requests = []
        for place in range(int(number)):
            method, lenience, draft_length = settings[3 * place : 3 * place + 3]
            own = {"method": method, "lenience": lenience, "draft_length": draft_length}
            requests.append(Request(inspect=INSPECT, **common, **own))
        yield from service.compare_lines(
            key, requests, stop, progress, measure_alone=measure, visitor=visitor
        )

    count.input(_columns, count, [pane.column for pane in panes], **QUIET)
    for button, preset in zip(presets, PRESETS, strict=True):
        _wire_preset(button, preset, tab)
    triggers = [buttons[0].click, prompt.submit, tab.go.change]
    inputs = [alone, *tab.settings.values(), *tab.pane_inputs]
    wire_run(page, lines, triggers=triggers, buttons=buttons, inputs=inputs, view=view)
    return tab


def _pane_controls(place: int, pane: Pane) -> PaneControls:
    with gr.Column(min_width=220) as column:
        name = f"{PREFIX}{place + 1}-"
        method = method_dropdown(pane.method, f"{name}method", label=f"Pane {place + 1}: method")
        lenience = lenience_slider(pane.method, pane.lenience, elem_id=f"{name}lenience")
        draft_length = draft_length_dropdown(f"{name}draft-length")
    # Not `change`: a preset and a link bring the lenience along with the method.
    method.input(lenience_slider, method, lenience, **QUIET)
    return PaneControls(column, method, lenience, draft_length)


def _wire_preset(button: gr.Button, preset: Preset, tab: Compare) -> None:
    outputs = [*tab.pane_outputs, tab.sampling.temperature, tab.prompt]

    def choose() -> list[Any]:
        prompt = gr.skip() if preset.prompt is None else preset.prompt
        return [*set_panes(preset.panes), preset.temperature, prompt]

    button.click(choose, None, outputs, **QUIET)
