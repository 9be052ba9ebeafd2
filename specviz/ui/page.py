"""The page: controls on one side, the view of a run on the other.

Turns what people set into requests and streams traces into the view. Knows gradio, the service and the registries;
knows no torch and draws nothing itself.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import gradio as gr

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

EXAMPLES = (
    "Why is the sky blue? Answer in three sentences.",
    "Write a short story about a lighthouse keeper who finds a message in a bottle.",
    "Write a Python function that checks whether a word is a palindrome.",
    "A train travels 60 miles in 1.5 hours. What is its average speed? Show your steps.",
)

INTRODUCTION = """# SpecViz
A small **drafter** proposes, a large **verifier** checks several proposals at once, and a rule decides which to \
keep. Watch real text stream, and see who had the last word on every token."""

CSS = """
.specviz-controls { position: sticky; top: 12px; align-self: flex-start; }
@media (max-width: 768px) { .specviz-controls { position: static; } }
.specviz-intro h1 { margin: 0 0 2px; }
.specviz-method p { margin: 2px 0; }
"""

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


def build_page(service: Service | None = None) -> gr.Blocks:
    """The whole page, ready to `launch`."""
    service = service or Service()
    stops = Stops()
    words = ("title", "formula", "sentence", "score_label", "threshold_label")
    methods = {name: {word: getattr(method, word) for word in words} for name, method in METHODS.items()}

    with gr.Blocks(title="SpecViz: speculative cascades, token by token", analytics_enabled=False) as page:
        gr.Markdown(INTRODUCTION, elem_classes="specviz-intro")
        with gr.Tab("Generate"), gr.Row():
            with gr.Column(scale=2, min_width=320, elem_classes="specviz-controls"):
                prompt = gr.Textbox(
                    EXAMPLES[0],
                    label="Prompt",
                    lines=3,
                    max_lines=10,
                    elem_id="prompt",
                    placeholder="Ask something",
                )
                gr.Examples(
                    [[text] for text in EXAMPLES],
                    [prompt],
                    label="Or take one of these",
                    api_visibility="private",
                )
                with gr.Row():
                    run = gr.Button("Run", variant="primary", elem_id="run")
                    stop = gr.Button("Stop", variant="stop", interactive=False, elem_id="stop")
                method = gr.Dropdown(
                    [(m.title, name) for name, m in METHODS.items()],
                    value=DEFAULT_METHOD,
                    label="Method",
                    elem_id="method",
                )
                about = gr.Markdown(
                    describe_method(DEFAULT_METHOD), elem_classes="specviz-method", elem_id="about-method"
                )
                lenience = lenience_slider(DEFAULT_METHOD, elem_id="lenience")
                pair = gr.Dropdown(
                    [(spec.title, key) for key, spec in PAIRS.items()],
                    value=DEFAULT_PAIR,
                    label="Model pair",
                    info="drafter → verifier",
                    elem_id="pair",
                )
                with gr.Accordion("Draft length, sampling, seed", open=False):
                    draft_length = gr.Slider(
                        1,
                        MAX_DRAFT_LENGTH,
                        value=5,
                        step=1,
                        label="Draft length K",
                        elem_id="draft-length",
                        info="Proposals in a round. Changes the speed, never the text.",
                    )
                    temperature = gr.Slider(
                        0,
                        2,
                        value=1,
                        step=0.05,
                        label="Temperature",
                        info="0 is greedy.",
                        elem_id="temperature",
                    )
                    top_k = gr.Number(
                        0, label="top-k", info="0 keeps all tokens.", precision=0, minimum=0, elem_id="top-k"
                    )
                    top_p = gr.Slider(
                        0.05,
                        1,
                        value=1,
                        step=0.05,
                        label="top-p",
                        info="1 keeps all tokens.",
                        elem_id="top-p",
                    )
                    tokens = gr.Slider(
                        8,
                        MAX_NEW_TOKENS,
                        value=128,
                        step=8,
                        label="Most tokens to write",
                        elem_id="max-new-tokens",
                    )
                    with gr.Row(equal_height=True):
                        seed = gr.Number(
                            0,
                            label="Seed",
                            info="Same seed, same text.",
                            precision=0,
                            minimum=0,
                            elem_id="seed",
                        )
                        new_seed = gr.Button("New seed", elem_id="new-seed")
            with gr.Column(scale=5, min_width=320):
                view = TraceView(methods=methods, elem_id="view")

        settings = [pair, prompt, method, lenience, draft_length, temperature, top_k, top_p, tokens, seed]

        def show_method(name: str) -> tuple[str, gr.Slider]:
            return describe_method(name), lenience_slider(name)

        def arm(request: gr.Request) -> tuple[gr.Button, gr.Button]:
            stops.arm(_session(request))
            return gr.Button(interactive=False), gr.Button(interactive=True)

        def disarm() -> tuple[gr.Button, gr.Button]:
            return gr.Button(interactive=True), gr.Button(interactive=False)

        def halt(request: gr.Request) -> None:
            stops.stop(_session(request))

        def leave(request: gr.Request) -> None:
            stops.forget(_session(request))

        def generate(
            request: gr.Request,
            *values: Any,
            progress: gr.Progress = gr.Progress(),  # noqa: B008
        ) -> Iterator[str]:
            yield from stream(service, stops.flag(_session(request)), progress, *values)

        quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
        method.change(show_method, method, [about, lenience], queue=False, **quiet)
        new_seed.click(None, None, seed, js=f"() => Math.floor(Math.random() * {MAX_SEED})", **quiet)
        gr.on([run.click, prompt.submit], arm, None, [run, stop], queue=False, **quiet).then(
            generate,
            settings,
            view,
            concurrency_limit=1,
            concurrency_id="engine",
            show_progress="full",
            api_visibility="private",
        ).then(disarm, None, [run, stop], queue=False, **quiet)
        stop.click(halt, None, None, queue=False, **quiet)
        page.unload(leave)
        page.queue(max_size=QUEUE)
    return page


def stream(service: Service, stop: threading.Event, progress: Any, pair: str, *values: Any) -> Iterator[str]:
    """Run one request and yield the trace so far, at most every `UPDATE_SECONDS`.

    Raises:
        gr.Error: a sentence for whoever pressed Run.
    """
    names = (
        "prompt",
        "method",
        "lenience",
        "draft_length",
        "temperature",
        "top_k",
        "top_p",
        "max_new_tokens",
        "seed",
    )
    trace, shown = "", 0.0
    try:
        request = Request(inspect=INSPECT, **dict(zip(names, values, strict=True)))
        for line in service.lines(pair, request, stop, lambda fraction, text: progress(fraction, desc=text)):
            trace += line
            if time.monotonic() - shown >= UPDATE_SECONDS:
                yield trace
                shown = time.monotonic()
        yield trace
    except SpecvizError as error:
        raise gr.Error(str(error), title="That did not work", print_exception=False) from error
    except Exception as error:
        log.exception("a run failed")
        raise gr.Error(
            "Something broke inside SpecViz and this run has ended; the next one should work.",
            title="That did not work",
            print_exception=False,
        ) from error


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
