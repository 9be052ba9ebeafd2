"""Streams runs into views: connects the buttons Run and Stop, limits the rate of updates, and reports failures."""

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
"""Shortest time between two updates of a view."""
UPDATES_A_SECOND = 40
"""Most updates per second of all views together. The more views stream, the fewer updates each gets."""
QUIET: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
"""Options of small events: no queue, no spinner, not in the API."""

_SESSIONS = 10_000
"""Most sessions with a stop flag. A limit, so that invented sessions cannot fill the memory."""
_streams: set[object] = set()
"""Answers that are streaming now."""


def page_script(name: str, **values: Any) -> str:
    """The function in `static/page/<name>.js`, for an event's `js`. `values` replace the placeholders in capitals."""
    script = (Path(__file__).parent / "static/page" / f"{name}.js").read_text(encoding="utf-8")
    script = script[script.index("*/") + 2 :].strip()  # gradio expects a function from the first character on
    for word, value in values.items():
        script = script.replace(word, json.dumps(value))
    return script


def session_of(request: gr.Request | None) -> str:
    """Gradio's id of the browser session, or ""."""
    return (request.session_hash if request else None) or ""


class Stops:
    """A stop flag for each browser session with a run."""

    def __init__(self) -> None:
        self._flags: dict[str, threading.Event] = {}

    def arm(self, request: gr.Request) -> threading.Event:
        """A new flag for the session's next run."""
        while len(self._flags) >= _SESSIONS:
            self._flags.pop(next(iter(self._flags)), None)
        flag = self._flags[session_of(request)] = threading.Event()
        return flag

    def flag(self, request: gr.Request) -> threading.Event:
        """The flag of the session's run."""
        return self._flags.get(session_of(request)) or self.arm(request)

    def stop(self, request: gr.Request) -> None:
        """Stop the session's run."""
        if flag := self._flags.get(session_of(request)):
            flag.set()

    def forget(self, request: gr.Request) -> None:
        """Stop the run of a session that has ended, and drop its flag."""
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
    """Let `triggers` start `run` and stream what it yields into `view`.

    Args:
        page: a session's run stops when its visitor leaves this page.
        run: called as (stop, progress, visitor, *values of the inputs); yields values of the view, or lists of values if there are
            more outputs. Must not raise, or the buttons would stay as they are during a run.
        triggers: events that start a run.
        buttons: Run and Stop.
        inputs: components whose values `run` gets.
        view: emptied and scrolled to before the run.
        more_outputs: components that `run` sets as well.
        check: called first, with the values of the inputs. If it raises a RequestError or a PairError, a notice shows the message and
            the view keeps the previous run.
    """
    stops = Stops()
    start, stop = buttons

    def begin(request: gr.Request, *values: Any) -> tuple[Any, Any, Any]:
        try:
            check(*values)
        except (RequestError, PairError):  # `serve` raises it again; its event can show it
            return gr.skip(), gr.skip(), gr.skip()
        stops.arm(request)
        return gr.Button(interactive=False), gr.Button(interactive=True), ""

    def serve(
        request: gr.Request,
        *values: Any,
        progress: gr.Progress = gr.Progress(),  # noqa: B008
    ) -> Iterator[Any]:
        check(*values)

        # Downloads report progress from other threads, and gradio finds the run in the caller's context.
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
        concurrency_limit=None,  # the scheduler has its own queue, and shows users their position
        api_visibility="private",
    )
    then_always(ran, None, None, [start, stop], js=page_script("run_ended"), **QUIET)
    stop.click(stops.stop, None, None, **QUIET)
    page.unload(stops.forget)


def grow(lines: Callable[..., Iterator[str]], *values: Any) -> Iterator[str]:
    """Yield the text of all lines so far: at most every `UPDATE_SECONDS`, but always at an empty line and at the end.

    An error becomes a last line of type "error", which the view shows. If it were raised, gradio would show a notice that fades.
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
    """Count an answer as streaming. Yields a function that returns the shortest time between two of its updates, in seconds."""
    key = object()
    _streams.add(key)
    try:
        yield lambda: max(UPDATE_SECONDS, len(_streams) / UPDATES_A_SECOND)
    finally:
        _streams.remove(key)


def in_a_sentence(error: Exception) -> str:
    """The message for an error. Unexpected errors are logged."""
    if isinstance(error, SpecvizError):
        return str(error)
    log.error("a run failed", exc_info=error)
    return BROKEN


def error_line(message: str) -> str:
    """The last line of a run that failed."""
    return json.dumps({"type": "error", "message": message}) + "\n"
