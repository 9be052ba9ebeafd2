"""The page: controls on one side, the view of a run on the other.

Turns what people set into requests and streams traces into the view. Knows gradio, the service and the registries;
knows no torch and draws nothing itself.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.components import Component

from specviz.errors import SpecvizError
from specviz.methods import METHODS, get_method
from specviz.pairs import DEFAULT_PAIR, PAIRS
from specviz.request import MAX_DRAFT_LENGTH, Request
from specviz.service import Service
from specviz.ui.view import TraceView

log = logging.getLogger(__name__)

DEFAULT_METHOD = Request(prompt="-").method
INSPECT = 10
MAX_NEW_TOKENS = 512
MAX_SEED = 2**31 - 1
QUEUE = 32
"""Users that may wait; one more is told that the queue is full."""
UPDATE_SECONDS = 0.12
"""Least time between two updates of the view."""

SETTINGS = (
    *("prompt", "method", "lenience", "draft_length", "temperature"),
    *("top_k", "top_p", "max_new_tokens", "seed"),
)
"""What a page's run is made of, by the names of a `Request`, in the order of its inputs."""

EXAMPLES = {
    "A story": "Write a short story about a lighthouse keeper who finds a message in a bottle.",
    "A fact": "Why is the sky blue? Explain it to a curious child.",
    "Code": "Write a Python function that checks whether a word is a palindrome.",
    "Arithmetic": "A train travels 60 miles in 1.5 hours. What is its average speed? Show your steps.",
}
"""Prompts to begin with, by the names on their buttons; the first one is filled in."""

INTRODUCTION = """# SpecViz
A small **drafter** proposes, a large **verifier** checks several proposals at once, and a rule decides which to \
keep. Watch real text stream, and see who had the last word on every token."""

CSS = """
.specviz-controls { position: sticky; top: 12px; align-self: flex-start; }
@media (max-width: 768px) { .specviz-controls { position: static; } }
.specviz-intro h1 { margin: 0 0 2px; }
.specviz-method p { margin: 2px 0; }
"""

# On a phone the view lies below the controls: whoever presses Run wants to see it.
SCROLL_TO_VIEW = """() => {
  const view = document.getElementById("view");
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  if (innerWidth < 768) view.scrollIntoView({ behavior: calm ? "auto" : "smooth" });
}"""

# Only fonts the reader's machine has: the page asks nobody but its own server for anything.
_FONT = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif")
_MONO = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace")
THEME = gr.themes.Default(primary_hue="blue", font=_FONT, font_mono=_MONO)


class Stops:
    """One stop flag for each browser session that runs or waits."""

    def __init__(self) -> None:
        self._flags: dict[str, threading.Event] = {}

    def arm(self, session: str) -> None:
        """A fresh flag for a session's next run."""
        self._flags[session] = threading.Event()

    def stop(self, session: str) -> None:
        """Ask the session's run, waiting or streaming, to end."""
        if flag := self._flags.get(session):
            flag.set()

    def flag(self, session: str) -> threading.Event:
        """The flag the session's run looks at."""
        return self._flags.setdefault(session, threading.Event())

    def forget(self, session: str) -> None:
        """The session is gone: its run ends too."""
        self.stop(session)
        self._flags.pop(session, None)


def _session(request: gr.Request | None) -> str:
    return (request.session_hash if request else None) or ""


def describe_method(name: str) -> str:
    """A method in Markdown: its sentence and its formula, from the registry."""
    method = get_method(name)
    return f"{method.sentence}\n\n`{method.formula}`"


def lenience_slider(name: str, **more: Any) -> gr.Slider:
    """The lenience slider for a method: range, default and the names of its ends from the registry."""
    method = get_method(name)
    low, high = method.offered_range if method.has_lenience else (0.0, 1.0)
    ends = (
        f"{method.strict_end}  ⟷  {method.drafter_end}"
        if method.has_lenience
        else "This method has no lenience."
    )
    return gr.Slider(
        low,
        high,
        value=method.default_lenience,
        step=(high - low) / 100,
        label="Lenience α",
        info=ends,
        interactive=method.has_lenience,
        **more,
    )


@dataclass(frozen=True)
class Controls:
    """The left column: everything that is set before a run, and the buttons."""

    prompt: gr.Textbox
    run: gr.Button
    stop: gr.Button
    method: gr.Dropdown
    about: gr.Markdown
    lenience: gr.Slider
    pair: gr.Dropdown
    draft_length: gr.Slider
    temperature: gr.Slider
    top_k: gr.Number
    top_p: gr.Slider
    max_new_tokens: gr.Slider
    seed: gr.Number
    new_seed: gr.Button

    @property
    def settings(self) -> list[Component]:
        """The inputs of a run: the pair, then what `SETTINGS` names."""
        return [self.pair, *(getattr(self, name) for name in SETTINGS)]


def _controls() -> Controls:
    prompt = gr.Textbox(
        next(iter(EXAMPLES.values())),
        label="Prompt",
        lines=3,
        max_lines=10,
        elem_id="prompt",
        placeholder="What should the models answer?",
    )
    gr.Examples(
        [[text] for text in EXAMPLES.values()],
        [prompt],
        label="Or take one of these",
        example_labels=list(EXAMPLES),
        api_visibility="private",
    )
    with gr.Row():
        run = gr.Button("Run", variant="primary", elem_id="run")
        stop = gr.Button("Stop", variant="stop", interactive=False, elem_id="stop")
    titles = [(method.title, name) for name, method in METHODS.items()]
    method = gr.Dropdown(titles, value=DEFAULT_METHOD, label="Method", elem_id="method")
    about = gr.Markdown(
        describe_method(DEFAULT_METHOD), elem_classes="specviz-method", elem_id="about-method"
    )
    lenience = lenience_slider(DEFAULT_METHOD, elem_id="lenience")
    pair = gr.Dropdown(
        [(spec.title, key) for key, spec in PAIRS.items()],
        value=DEFAULT_PAIR,
        label="Model pair",
        info=PAIRS[DEFAULT_PAIR].about,
        elem_id="pair",
    )
    with gr.Accordion("Draft length, sampling, seed", open=False):
        hint = "Proposals in a round. Changes the speed, never the text."
        draft_length = _slider(1, MAX_DRAFT_LENGTH, 5, 1, "Draft length K", hint, "draft-length")
        temperature = _slider(0, 2, 0.7, 0.05, "Temperature", "0 is greedy.", "temperature")
        top_k = _whole(0, "top-k", "0 keeps all tokens.", "top-k")
        top_p = _slider(0.05, 1, 1, 0.05, "top-p", "1 keeps all tokens.", "top-p")
        tokens = _slider(8, MAX_NEW_TOKENS, 128, 8, "Most tokens to write", None, "max-new-tokens")
        with gr.Row(equal_height=True):
            seed = _whole(0, "Seed", "Same seed, same text.", "seed")
            new_seed = gr.Button("New seed", elem_id="new-seed")
    sampling = (draft_length, temperature, top_k, top_p, tokens, seed, new_seed)
    return Controls(prompt, run, stop, method, about, lenience, pair, *sampling)


def _slider(
    low: float, high: float, value: float, step: float, label: str, info: str | None, name: str
) -> gr.Slider:
    return gr.Slider(low, high, value=value, step=step, label=label, info=info, elem_id=name)


def _whole(value: int, label: str, info: str, name: str) -> gr.Number:
    return gr.Number(value, label=label, info=info, precision=0, elem_id=name)


def build_page(service: Service | None = None) -> gr.Blocks:
    """The whole page, ready to `launch`."""
    service = service or Service()
    words = ("title", "formula", "sentence", "score_label", "threshold_label")
    methods = {name: {word: getattr(method, word) for word in words} for name, method in METHODS.items()}
    with gr.Blocks(title="SpecViz: speculative cascades, token by token", analytics_enabled=False) as page:
        gr.Markdown(INTRODUCTION, elem_classes="specviz-intro")
        with gr.Tab("Generate"), gr.Row():
            with gr.Column(scale=2, min_width=320, elem_classes="specviz-controls"):
                controls = _controls()
            with gr.Column(scale=5, min_width=320):
                view = TraceView(methods=methods, elem_id="view")
        _wire(page, service, controls, view)
        page.queue(max_size=QUEUE)
    return page


def _wire(page: gr.Blocks, service: Service, controls: Controls, view: TraceView) -> None:
    """What happens when. A run and its Stop meet through a flag of the browser session's own."""
    stops = Stops()

    def show_method(name: str) -> tuple[str, gr.Slider]:
        return describe_method(name), lenience_slider(name)

    def show_pair(key: str) -> gr.Dropdown:
        return gr.Dropdown(info=PAIRS[key].about)

    def begin(request: gr.Request) -> tuple[gr.Button, gr.Button, str]:
        stops.arm(_session(request))
        return gr.Button(interactive=False), gr.Button(interactive=True), ""

    def generate(
        request: gr.Request,
        *values: Any,
        progress: gr.Progress = gr.Progress(),  # noqa: B008
    ) -> Iterator[str]:
        yield from stream(service, stops.flag(_session(request)), progress, *values)

    def end() -> tuple[gr.Button, gr.Button]:
        return gr.Button(interactive=True), gr.Button(interactive=False)

    def halt(request: gr.Request) -> None:
        stops.stop(_session(request))

    def leave(request: gr.Request) -> None:
        stops.forget(_session(request))

    quiet: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
    buttons = [controls.run, controls.stop]
    controls.method.change(show_method, controls.method, [controls.about, controls.lenience], **quiet)
    controls.pair.change(show_pair, controls.pair, controls.pair, **quiet)
    new_seed = f"() => Math.floor(Math.random() * {MAX_SEED})"
    controls.new_seed.click(None, None, controls.seed, js=new_seed, **quiet)
    asked = gr.on(
        [controls.run.click, controls.prompt.submit],
        begin,
        None,
        [*buttons, view],
        js=SCROLL_TO_VIEW,
        **quiet,
    )
    # One engine, one run at a time: whoever comes second waits in the queue, and the view says so.
    ran = asked.then(
        generate,
        controls.settings,
        view,
        concurrency_limit=1,
        concurrency_id="engine",
        api_visibility="private",
    )
    # In gradio 6.31 what `then` adds is left out after a failure, such as a full queue.
    ran.then(end, None, buttons, **quiet)
    ran.failure(end, None, buttons, **quiet)
    controls.stop.click(halt, None, None, **quiet)
    page.unload(leave)


def stream(service: Service, stop: threading.Event, progress: Any, pair: str, *values: Any) -> Iterator[str]:
    """Run one request and yield the trace so far, at most every `UPDATE_SECONDS`.

    What goes wrong becomes a last line of type "error" for the view. (Raised, it would be a toast that fades, and
    gradio would leave the buttons as they are while a run is on.)
    """
    trace, shown = "", 0.0
    try:
        request = Request(inspect=INSPECT, **dict(zip(SETTINGS, values, strict=True)))
        for line in service.lines(pair, request, stop, lambda fraction, text: progress(fraction, desc=text)):
            trace += line
            if time.monotonic() - shown >= UPDATE_SECONDS:
                yield trace
                shown = time.monotonic()
    except SpecvizError as error:
        trace += _error_line(str(error))
    except Exception:
        log.exception("a run failed")
        trace += _error_line(
            "Something broke inside SpecViz and this run has ended; the next one should work."
        )
    yield trace


def _error_line(message: str) -> str:
    return json.dumps({"type": "error", "message": message}) + "\n"


def launch(page: gr.Blocks, **more: Any) -> Any:
    """Serve the page on HOST and PORT (by default 127.0.0.1 and 7860; Gradio's own variables count too)."""
    port = os.environ.get("PORT") or os.environ.get("GRADIO_SERVER_PORT") or "7860"
    options: dict[str, Any] = {
        "server_name": os.environ.get("HOST") or os.environ.get("GRADIO_SERVER_NAME") or "127.0.0.1",
        "server_port": int(port),
        "theme": THEME,
        "css": CSS,
        "footer_links": ["settings"],
        "ssr_mode": False,
        "run_history": False,
    }
    return page.launch(**options | more)
