"""The tab Generate: controls on one side, the view of a run on the other.

Turns what people set into one request and streams its trace into the view. Knows the service and the registries;
knows no torch and draws nothing itself.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.components import Component

from specviz.app.components.run_view import TraceView
from specviz.app.controls import (
    DEFAULT_METHOD,
    Sampling,
    describe_method,
    draft_length_dropdown,
    lenience_slider,
    link_button,
    method_dropdown,
    pair_dropdown,
    prompt_box,
    run_buttons,
    sampling_controls,
)
from specviz.app.running import QUIET, wire_run
from specviz.progress import Progress
from specviz.schema.settings import Request
from specviz.serving.service import Service

INSPECT = 10


@dataclass(frozen=True)
class Generate:
    """The tab's parts that others may speak to."""

    prompt: gr.Textbox
    method: gr.Dropdown
    about: gr.Markdown
    lenience: gr.Slider
    pair: gr.Dropdown
    draft_length: gr.Dropdown
    sampling: Sampling
    view: TraceView

    @property
    def settings(self) -> dict[str, Component]:
        """The inputs of a run, by the names of a `Request`; the pair comes first."""
        own = ("pair", "prompt", "method", "lenience", "draft_length")
        return {name: getattr(self, name) for name in own} | self.sampling.settings


def generate_tab(page: gr.Blocks, service: Service, methods: dict[str, dict[str, Any]]) -> Generate:
    """Build the tab's content; `methods` is what the view says of each method."""
    with gr.Row():
        with gr.Column(scale=2, min_width=320, elem_classes="specviz-controls"):
            prompt = prompt_box()
            buttons = run_buttons()
            method = method_dropdown(DEFAULT_METHOD, "method")
            about = gr.Markdown(
                describe_method(DEFAULT_METHOD), elem_classes="specviz-method", elem_id="about-method"
            )
            lenience = lenience_slider(DEFAULT_METHOD, elem_id="lenience")
            pair = pair_dropdown()
            with gr.Accordion("Draft length, sampling, seed", open=False):
                hint = (
                    "Proposals in a round: chosen anew for each, or fixed. Changes the speed, never the text."
                )
                draft_length = draft_length_dropdown("draft-length", hint)
                sampling = sampling_controls(service.limits)
            share = gr.Column()
        with gr.Column(scale=5, min_width=320):
            view = TraceView(methods=methods, offers_replay=True, elem_id="view")
    tab = Generate(prompt, method, about, lenience, pair, draft_length, sampling, view)
    with share:
        link_button("generate", tab.settings)

    def show_method(name: str) -> tuple[str, gr.Slider]:
        return describe_method(name), lenience_slider(name)

    def lines(
        stop: threading.Event, progress: Progress, visitor: str, key: str, *values: Any
    ) -> Iterator[str]:
        names = list(tab.settings)[1:]
        request = Request(inspect=INSPECT, **dict(zip(names, values, strict=True)))
        yield from service.lines(key, request, stop, progress, visitor=visitor)

    # Not `change`: a method that comes with its lenience, as from a link, must keep it.
    method.input(show_method, method, [about, lenience], **QUIET)
    inputs = list(tab.settings.values())
    triggers = [buttons[0].click, prompt.submit]
    wire_run(page, lines, triggers=triggers, buttons=buttons, inputs=inputs, view=view)
    return tab
