"""The tab Generate: controls on one side, the view of a run on the other.

Turns the values of the controls into one request and streams its trace into the view. Knows the service and the
registries; knows no torch and draws nothing itself.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr
from gradio.components import Component

from specviz.app.components.trace_view import TraceView
from specviz.app.controls import (
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
from specviz.app.running import QUIET, grow, wire_run
from specviz.progress import Progress
from specviz.schema.settings import DEFAULT_METHOD, Request
from specviz.serving.service import Service

INSPECT = 10
"""Most probable tokens of each model recorded at every token."""


@dataclass(frozen=True)
class Generate:
    """The tab's parts that others read and set."""

    settings: dict[str, Component]
    """The inputs of a run, by the names of a `Request`; the pair comes first."""
    about: gr.Markdown
    view: TraceView


def generate_tab(page: gr.Blocks, service: Service) -> Generate:
    """Build the tab's content, inside the caller's `gr.Tab`."""
    start = DEFAULT_METHOD
    hint = "Proposals in a round: chosen anew for each, or fixed. Changes the speed, never the text."
    with gr.Row():
        with gr.Column(scale=2, min_width=320, elem_classes="specviz-controls"):
            prompt = prompt_box()
            buttons = run_buttons()
            method = method_dropdown(start, "method")
            about = gr.Markdown(describe_method(start), elem_classes="specviz-method", elem_id="about-method")
            lenience = lenience_slider(start, elem_id="lenience")
            pair = pair_dropdown()
            with gr.Accordion("Draft length, sampling, seed", open=False):
                draft_length = draft_length_dropdown("draft-length", hint)
                sampling = sampling_controls(service.limits)
            share = gr.Column()
        with gr.Column(scale=5, min_width=320):
            view = TraceView(offers_replay=True, elem_id="view")
    settings: dict[str, Component] = {"pair": pair, "prompt": prompt, "method": method}
    settings |= {"lenience": lenience, "draft_length": draft_length} | sampling
    with share:
        link_button("generate", settings)
    # Not `change`: a method that comes with its lenience, as from a link, must keep it.
    method.input(
        lambda name: (describe_method(name), lenience_slider(name)), method, [about, lenience], **QUIET
    )

    def lines(stop: threading.Event, progress: Progress, visitor: str, *values: Any) -> Iterator[str]:
        asked = dict(zip(settings, values, strict=True))
        return service.lines(
            asked.pop("pair"), Request(inspect=INSPECT, **asked), stop, progress, visitor=visitor
        )

    wire_run(
        page,
        partial(grow, lines),
        triggers=[buttons[0].click, prompt.submit],
        buttons=buttons,
        inputs=list(settings.values()),
        view=view,
    )
    return Generate(settings, about, view)
