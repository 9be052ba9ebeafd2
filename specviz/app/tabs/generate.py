"""The tab One run: settings, and the view of one run, which may be live, recorded, or from a file."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr
from gradio.components import Component

from specviz.analysis.recorded_runs import read_recorded_runs
from specviz.app.components.lenience_track import LenienceTrack, lenience_value
from specviz.app.components.rule_field import RuleField
from specviz.app.components.trace_view import TraceView
from specviz.app.controls import (
    EXAMPLES,
    address_script,
    describe_method,
    draft_length_dropdown,
    drawer,
    link_button,
    method_dropdown,
    pair_dropdown,
    prompt_box,
    request_settings,
    run_buttons,
    sampling_controls,
    wire_settings,
)
from specviz.app.guard import MAX_SENTENCE
from specviz.app.link import DRAFT_LENGTHS, ranged
from specviz.app.running import (
    QUIET,
    Stops,
    error_line,
    grow,
    page_script,
    sent_with,
    visitor_of,
    wire_run,
)
from specviz.app.traces import MAX_PACKED, fork_id, fork_lines, opened_run, recorded_value
from specviz.compat.gradio import event_data
from specviz.core.methods import METHODS, OWN_RULE
from specviz.errors import SpecvizError
from specviz.models.registry import PAIRS
from specviz.progress import Progress
from specviz.schema.settings import AUTO, Request
from specviz.schema.trace import Run
from specviz.serving.limits import Limits, Visitor
from specviz.serving.lines import record
from specviz.serving.offer import offered_pairs
from specviz.serving.service import Service

OPENING = "token-rule"
"""Key of the recorded run with which the tab opens."""
INSPECT = 10
"""Number of top tokens of each model to record with each token."""


@dataclass(frozen=True)
class Generate:
    """The tab's components that other modules read and set."""

    settings: dict[str, Component]
    """The controls of the settings, by name: "pair", then fields of `Request`."""
    about: gr.Markdown
    view: TraceView
    examples: gr.Dropdown
    """Recorded runs and example prompts. The value is the key of the recorded run that is shown, or ""."""
    drop: Callable[[gr.Request], None]
    """Ends the run of a request's session and discards the run's further output."""


def show_recorded(key: str, limits: Limits, **how: Any) -> tuple[str, dict[str, Any]]:
    """Return the view's value and the values of the form's controls for the recorded run `key`. For `how` see `recorded_value`."""
    recordings = read_recorded_runs()
    run = recordings.load(key)
    return recorded_value(recordings, key, run, **how), form_of(run, limits)


def generate_tab(page: gr.Blocks, service: Service) -> Generate:
    """Build the tab's content, inside the caller's `gr.Tab`. It opens with the recorded run `OPENING`."""
    value, opening = show_recorded(OPENING, service.limits)
    start = opening["method"]
    limit = service.limits.max_trace_bytes
    with gr.Row(elem_classes="specviz-ask"):
        prompt = prompt_box()
        recorded = [(f"Recorded: {run.title}", run.key) for run in read_recorded_runs().runs]
        choices = [("Examples …", ""), *EXAMPLES.items(), *recorded]
        shown: dict[str, Any] = {"label": "Examples", "show_label": False, "min_width": 120}
        examples = gr.Dropdown(choices, value="", filterable=False, elem_id="examples", **shown)
        buttons = run_buttons()
        more = gr.Button("⚙ Settings", size="sm", min_width=40, elem_id="more-settings")
        share = gr.Button("Share", size="sm", min_width=40, elem_id="share")
    with gr.Row(elem_classes="specviz-choice"):
        pair = pair_dropdown(show_label=False)
        method = method_dropdown(start)
        lenience = LenienceTrack(lenience_value(start), elem_id="lenience")
    with gr.Column(visible=start == OWN_RULE, elem_id="own-rule") as own_rule:
        rule = RuleField(elem_id="rule")
    with drawer("settings-drawer", more):
        about = gr.Markdown(describe_method(start), elem_classes="specviz-method", elem_id="about-method")
        hint = "Draft tokens per round. Changes the speed, never the text."
        draft_length = draft_length_dropdown("draft-length", hint)
        sampling = sampling_controls(service.limits)
    settings: dict[str, Component] = {"pair": pair, "prompt": prompt, "method": method}
    settings |= {"lenience": lenience, "draft_length": draft_length, "rule": rule} | sampling
    for name, wanted in opening.items():
        settings[name].value = wanted
    with drawer("share-drawer", share):
        link_button("generate", settings | {"run": examples})
        for what in ("picture", "page", "trace"):
            save = gr.Button(f"Save {what}", size="sm", elem_id=f"save-{what}")
            save.click(None, None, None, js=page_script("save", WHAT=what), **QUIET)
        open_ = gr.Button("Open a trace …", size="sm", elem_id="open-trace")
        open_.click(None, None, None, js=page_script("open_trace", LIMIT=limit, PACKED=MAX_PACKED), **QUIET)
    view = TraceView(value, keeps=True, forks=True, form=True, elem_id="view")
    # Not `change`: that would reset the lenience of a link, which sets both.
    method.input(None, [method, lenience], lenience, js=page_script("set_lenience"), **QUIET)
    method.change(lambda name: gr.Column(visible=name == OWN_RULE), method, own_rule, **QUIET)
    method.input(describe_method, method, about, **QUIET)

    def lines(
        stop: threading.Event, progress: Progress, visitor: Visitor, asked: dict[str, Any]
    ) -> Iterator[str]:
        pair = asked.pop("pair")
        service.check_pair(pair)
        request = Request(inspect=INSPECT, **request_settings(asked))
        return service.lines(pair, request, stop, progress, visitor=visitor)

    triggers = [buttons[0].click, prompt.submit]
    gr.on(triggers, None, None, examples, js='() => ""', **QUIET)
    wire_settings("generate", settings, triggers)
    run = partial(grow, lines)
    drop, _ = wire_run(page, run, triggers=triggers, buttons=buttons, inputs=settings, view=view)
    _wire_forks(page, service, view)
    view.fill(_filled, None, [method, lenience], **QUIET)

    def choose(request: gr.Request, event: gr.EventData) -> list[Any]:
        """Fill the prompt with an example, or show a recorded run and fill the form with its settings."""
        index = sent_with(event).get("index")
        key = choices[index][1] if isinstance(index, int) and 0 <= index < len(choices) else ""
        if not key:
            return [gr.skip()] * (2 + len(settings))
        if key in EXAMPLES.values():
            return [gr.skip(), "", *fill(settings, {"prompt": key})]
        drop(request)
        value, values = show_recorded(key, service.limits, plays=True)
        return [value, key, *fill(settings, values)]

    def opened(request: gr.Request, event: gr.EventData) -> list[Any]:
        """Show the trace of a visitor's file, and fill the form with its settings."""
        try:
            run = opened_run(event_data(event), limit)
        except SpecvizError as error:
            return [error_line(str(error)[:MAX_SENTENCE]), gr.skip(), *fill(settings, {})]
        drop(request)
        value = "".join([*run.lines(), record("recorded", title="From a file", story="")])
        return [value, "", *fill(settings, form_of(run, service.limits))]

    # Not `input`, which a dropdown also fires when it loses focus.
    outputs = [view, examples, *settings.values()]
    chosen = examples.select(choose, None, outputs, **QUIET)
    js = address_script("keepAddress", "generate", {"run": examples})
    chosen.then(None, examples, None, js=js, **QUIET)
    view.open(opened, None, outputs, **QUIET)
    return Generate(settings, about, view, examples, drop)


def form_of(run: Run, limits: Limits) -> dict[str, Any]:
    """Values of the form's controls, by name, that repeat the run. Omits a pair, method or draft length that is not offered."""
    values: dict[str, Any] = {name: getattr(run, name) for name in ranged()}
    values |= {"prompt": run.prompt, "method": run.method, "draft_length": run.draft_length or AUTO}
    values["lenience"] = lenience_value(run.method, run.lenience)
    # For other pairs the default penalty is unknown, so the field must not be empty.
    own = PAIRS[run.pair].repetition_penalty if run.pair in PAIRS else None
    penalty = str(run.repetition_penalty).removesuffix(".0")
    values["repetition_penalty"] = "" if run.repetition_penalty == own else penalty
    values["max_new_tokens"] = min(run.max_new_tokens, limits.max_new_tokens)
    if run.rule:
        values["rule"] = run.rule
    if run.pair in offered_pairs():
        values["pair"] = run.pair
    if run.method not in METHODS:  # a file may name any method
        del values["method"], values["lenience"]
    if values["draft_length"] not in DRAFT_LENGTHS:
        del values["draft_length"]
    return values


def fill(settings: Mapping[str, Component], values: Mapping[str, Any]) -> list[Any]:
    """Updates for a form's controls, in their order; controls without a value stay as they are."""
    return [values.get(name, gr.skip()) for name in settings]


def fresh(settings: Mapping[str, Component], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return `wanted` with a fresh page's values for the other controls, since an address omits empty values. An address also omits a long
    prompt: if `wanted` has settings but no prompt, no prompt is added, so that the field keeps its text.
    """
    first = {name: component.value for name, component in settings.items()}
    return {name: value for name, value in first.items() if name != "prompt" or not wanted} | dict(wanted)


def _filled(event: gr.EventData) -> list[Any]:
    """Updates that set the method and the lenience that the view requests. The request is untrusted."""
    sent = sent_with(event)
    name, lenience = sent.get("method"), sent.get("lenience")
    if not isinstance(lenience, int | float) or not abs(lenience) <= sys.float_info.max:
        return [gr.skip(), gr.skip()]
    if not isinstance(name, str) or name not in METHODS:
        return [gr.skip(), gr.skip()]
    return [name, lenience_value(name, float(lenience))]


def _wire_forks(page: gr.Blocks, service: Service, view: TraceView) -> None:
    """Answer the view's requests for forks. In each browser session a new fork ends the previous one."""
    stops = Stops()

    def serve(request: gr.Request, event: gr.EventData) -> Iterator[dict[str, Any]]:
        sent = sent_with(event)
        with stops.running(request, fork_id(sent)) as stop:
            for value in grow(fork_lines, service, sent, INSPECT, stop, visitor_of(request)):
                yield gr.update(branch=value)

    def end(request: gr.Request, event: gr.EventData) -> None:
        stops.stop(request, fork_id(sent_with(event)))

    how: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
    view.fork(serve, None, view, trigger_mode="multiple", concurrency_limit=None, **how)
    view.unfork(end, None, None, **QUIET)
    page.unload(stops.drop)
