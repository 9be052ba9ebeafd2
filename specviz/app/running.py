"""How a run reaches the browser: its Run and Stop, how often its view is updated, and failures as one sentence.

Knows browser sessions and the lines of a view; knows neither the controls of a tab nor what the lines say.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.components import Component

from specviz.compat.gradio import then_always
from specviz.errors import BROKEN, PairError, RequestError, SpecvizError

log = logging.getLogger(__name__)

UPDATE_SECONDS = 0.2
"""Least time between two updates of a view."""
UPDATES_A_SECOND = 40
"""Of all views together, at most: where many stream at once, each is updated less often."""
QUIET: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
"""How small events are wired: at once, without a spinner, and for the page alone."""

_SESSIONS = 10_000
"""Sessions whose stop flags are kept."""
_streams: set[object] = set()
"""The answers that stream now."""


def page_script(name: str, **values: Any) -> str:
    """The function in `static/page/<name>.js`, for an event's `js`; words in capitals in it are replaced by `values`."""
    script = (Path(__file__).parent / "static/page" / f"{name}.js").read_text(encoding="utf-8")
    script = script[script.index("*/") + 2 :].strip()  # gradio expects a function from the first character on
    for word, value in values.items():
        script = script.replace(word, json.dumps(value))
    return script


def session_of(request: gr.Request | None) -> str:
    """Gradio's name of the browser session that asks; "" where there is none."""
    return (request.session_hash if request else None) or ""


class Stops:
    """One stop flag for each browser session that has a run, waiting or streaming."""

    def __init__(self) -> None:
        self._flags: dict[str, threading.Event] = {}

    def arm(self, request: gr.Request) -> threading.Event:
        """A fresh flag for the session's next run."""
        while len(self._flags) >= _SESSIONS:  # made-up sessions must not fill the memory
            self._flags.pop(next(iter(self._flags)), None)
        flag = self._flags[session_of(request)] = threading.Event()
        return flag

    def flag(self, request: gr.Request) -> threading.Event:
        """The flag of the session's run."""
        return self._flags.get(session_of(request)) or self.arm(request)

    def stop(self, request: gr.Request) -> None:
        """Ask the session's run to end."""
        if flag := self._flags.get(session_of(request)):
            flag.set()

    def forget(self, request: gr.Request) -> None:
        """The session is gone: its run ends too."""
        self.stop(request)
        self._flags.pop(session_of(request), None)


def wire_run(
    page: gr.Blocks,
    run: Callable[..., Iterator[Any]],
    *,
    triggers: Sequence[Any],
    buttons: tuple[gr.Button, gr.Button],
    inputs: list[Component],
    view: gr.HTML,
    more_outputs: Sequence[Component] = (),
    check: Callable[..., None] = lambda *_: None,
) -> None:
    """Let `triggers` start `run` and stream what it yields into `view`; `buttons` are Run and Stop.

    A run and its Stop meet through a flag of the browser session's own.

    Args:
        page: whose sessions stop their runs when they leave.
        run: called as (stop, progress, visitor, *values of the inputs); yields values of the view, or lists of values
            where there are more outputs. Must not raise: gradio would leave the buttons as they are during a run.
        triggers: events that start a run.
        buttons: Run and Stop.
        inputs: whose values `run` gets.
        view: emptied first and brought into sight.
        more_outputs: that `run` sets beside the view.
        check: called with the values of the inputs before anything changes; where it raises a RequestError or a PairError, the run before stays
            and a notice has the sentence.
    """
    stops = Stops()
    start, stop = buttons

    def begin(request: gr.Request, *values: Any) -> tuple[Any, Any, Any]:
        try:
            check(*values)
        except (RequestError, PairError):  # told by `serve`, whose events can show it
            return gr.skip(), gr.skip(), gr.skip()
        stops.arm(request)
        return gr.Button(interactive=False), gr.Button(interactive=True), ""

    def serve(
        request: gr.Request,
        *values: Any,
        progress: gr.Progress = gr.Progress(),  # noqa: B008
    ) -> Iterator[Any]:
        check(*values)

        # Downloads report from threads of their own, and gradio takes the run from the context of whoever calls.
        context = copy_context()

        def report(fraction: float, text: str) -> None:
            context.copy().run(progress, fraction, desc=text)

        yield from run(stops.flag(request), report, session_of(request), *values)

    scroll = page_script("scroll_to_view", NAME=view.elem_id)
    begun = gr.on(triggers, begin, inputs, [start, stop, view], js=scroll, **QUIET)
    ran = begun.then(
        serve,
        inputs,
        [view, *more_outputs],
        show_progress_on=view,
        concurrency_limit=None,  # the scheduler has a queue of its own, in which users see their position
        api_visibility="private",
    )
    then_always(ran, None, None, [start, stop], js=page_script("run_ended"), **QUIET)
    stop.click(stops.stop, None, None, **QUIET)
    page.unload(stops.forget)


def grow(lines: Callable[..., Iterator[str]], *values: Any) -> Iterator[str]:
    """Yield all lines of `lines(*values)` so far, at most every `UPDATE_SECONDS`, at an empty line, and once more at the end.

    An error, also one raised by the call itself, becomes a last line of type "error" for the view. (Raised, it would be a toast
    that fades.)
    """
    value, shown = "", 0.0
    with streaming() as pause:
        try:
            for line in lines(*values):
                value += line
                if not line or time.monotonic() - shown >= pause():
                    yield value
                    shown = time.monotonic()
        except Exception as error:
            value += error_line(in_a_sentence(error))
    yield value


@contextmanager
def streaming() -> Iterator[Callable[[], float]]:
    """One of the answers that stream now, from its beginning to its end: gives the least seconds between two updates of it."""
    key = object()
    _streams.add(key)
    try:
        yield lambda: max(UPDATE_SECONDS, len(_streams) / UPDATES_A_SECOND)
    finally:
        _streams.remove(key)


def in_a_sentence(error: Exception) -> str:
    """The sentence shown for an error; one that was not raised on purpose is logged."""
    if isinstance(error, SpecvizError):
        return str(error)
    log.error("a run failed", exc_info=error)
    return BROKEN


def error_line(message: str) -> str:
    """The last line of a run that broke off."""
    return json.dumps({"type": "error", "message": message}) + "\n"
