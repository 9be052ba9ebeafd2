"""The tab One run: settings, and the view of a run from the service, from the recorded runs or from a file."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr
from gradio.components import Component

from specviz.analysis.recorded_runs import RecordedRuns, read_recorded_runs
from specviz.app.components.trace_view import TraceView
from specviz.app.controls import (
    check_rule,
    describe_method,
    draft_length_dropdown,
    drawer,
    example_buttons,
    keep_address,
    lenience_track,
    link_button,
    method_dropdown,
    pair_dropdown,
    prompt_box,
    request_settings,
    rule_field,
    run_buttons,
    sampling_controls,
    wire_penalty,
    wire_tracks,
)
from specviz.app.forks import fork_id, fork_lines
from specviz.app.recorded import TraceUpload, recorded_value, uploaded_value
from specviz.app.running import QUIET, Stops, grow, in_view, session_of, wire_run
from specviz.compat.gradio import event_data
from specviz.progress import Progress
from specviz.schema.settings import DEFAULT_METHOD, Request
from specviz.serving.service import Service

INSPECT = 10
"""Number of top tokens of each model to record with each token."""


@dataclass(frozen=True)
class Generate:
    """The tab's components that other modules read and set."""

    settings: dict[str, Component]
    """The settings of a run, by the names of a `Request`; the pair comes first."""
    about: gr.Markdown
    view: TraceView
    recorded: gr.Dropdown
    """The key of the shown recorded run, or ""."""
    recordings: RecordedRuns


def generate_tab(page: gr.Blocks, service: Service) -> Generate:
    """Build the tab's content, inside the caller's `gr.Tab`."""
    start = DEFAULT_METHOD
    recordings = read_recorded_runs()
    hint = "Draft tokens per round: chosen for each round, or fixed. Changes the speed, never the text."
    with gr.Row(elem_classes="specviz-bar"):
        prompt = prompt_box()
        method = method_dropdown(start, "method", min_width=200, scale=3)
        with gr.Column(scale=3, min_width=230):
            lenience = lenience_track(method, "lenience")
        buttons = run_buttons()
    rule = rule_field([method])
    with gr.Row(elem_classes="specviz-tools"):
        example_buttons(prompt)
        choices = [("Recorded runs …", ""), *((run.title, run.key) for run in recordings.runs)]
        recorded = gr.Dropdown(
            choices,
            value="",
            label="Recorded run",
            show_label=False,
            container=False,
            filterable=False,
            min_width=170,
            elem_id="recorded",
        )
        limit = service.limits.max_trace_bytes
        upload = TraceUpload("Open a trace", limit=limit, size="sm", min_width=110, elem_id="upload")
        share = gr.Row(elem_classes="specviz-share")
        more = gr.Button("More settings", size="sm", min_width=120, elem_id="more-settings")
    with drawer("settings-drawer", more):
        about = gr.Markdown(describe_method(start), elem_classes="specviz-method", elem_id="about-method")
        with gr.Row():
            pair = pair_dropdown()
            draft_length = draft_length_dropdown("draft-length", hint)
        sampling = sampling_controls(service.limits)
    view = TraceView(
        recorded_value(recordings, recordings.runs[0].key), keeps=True, forks=True, elem_id="view"
    )
    settings: dict[str, Component] = {"pair": pair, "prompt": prompt, "method": method}
    settings |= {"lenience": lenience, "draft_length": draft_length, "rule": rule} | sampling
    with share:
        link_button("generate", settings | {"run": recorded})
    method.input(describe_method, method, about, **QUIET)
    wire_tracks(settings)
    wire_penalty(settings)
    # Not `change`, since a new run resets the choice and must load no recorded run.
    recorded.input(
        lambda key: recorded_value(recordings, key, plays=True) if key else gr.skip(), recorded, view, **QUIET
    )
    keep_address("generate", {"run": recorded}, [recorded.input])
    upload.upload(lambda content: (uploaded_value(content, limit), ""), upload, [view, recorded], **QUIET)

    def lines(
        stop: threading.Event, progress: Progress, visitor: str, asked: dict[str, Any]
    ) -> Iterator[str]:
        pair = asked.pop("pair")
        check_rule(asked, [asked["method"]])
        service.check_pair(pair)
        request = Request(inspect=INSPECT, **request_settings(asked))
        return service.lines(pair, request, stop, progress, visitor=visitor)

    triggers = [buttons[0].click, prompt.submit]
    gr.on(triggers, None, None, recorded, js='() => ""', **QUIET)
    keep_address("generate", settings, triggers)
    wire_run(
        page,
        partial(in_view, view, lines),
        triggers=triggers,
        buttons=buttons,
        inputs=settings,
        view=view,
    )
    _wire_forks(page, service, view)
    return Generate(settings, about, view, recorded, recordings)


def _wire_forks(page: gr.Blocks, service: Service, view: TraceView) -> None:
    """Answer the view's requests for forks. In each browser session a new fork ends the previous one."""
    stops = Stops()

    def serve(request: gr.Request, event: gr.EventData) -> Iterator[dict[str, Any]]:
        sent = event_data(event)
        with stops.running(request, fork_id(sent)) as stop:
            for value in grow(fork_lines, service, sent, INSPECT, stop, session_of(request)):
                yield gr.update(branch=value)

    def end(request: gr.Request, event: gr.EventData) -> None:
        stops.stop(request, fork_id(event_data(event)))

    view.fork(
        serve,
        None,
        view,
        show_progress="hidden",
        trigger_mode="multiple",
        concurrency_limit=None,
        api_visibility="private",
    )
    view.unfork(end, None, None, **QUIET)
    page.unload(stops.drop)
