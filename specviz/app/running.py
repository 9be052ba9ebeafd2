"""Streams runs into views: connects the buttons Run and Stop, limits the rate of updates, and reports failures."""

from __future__ import annotations

import json
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.components import Component

from specviz.app.clients import client_address
from specviz.compat.gradio import event_data, is_tool_call, then_always
from specviz.errors import BROKEN, SpecvizError
from specviz.progress import Progress
from specviz.serving.limits import Visitor

log = logging.getLogger(__name__)

UPDATE_SECONDS = 0.2
"""Minimum seconds between two updates of a view."""
UPDATES_A_SECOND = 40
"""Maximum updates per second of all views together. The more views stream, the fewer updates each view gets."""
QUIET: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
"""Options of small events: no queue, no spinner, not in the API."""

_ENDING = 5.0
"""Maximum seconds that a run waits for the end of the run that it replaces."""
_streams: set[object] = set()
"""One object for each answer that is streaming now."""


def page_script(name: str, **values: Any) -> str:
    """The JavaScript function in `static/page/<name>.js`, for an event's `js`. `values` replace placeholders in capitals."""
    script = (Path(__file__).parent / "static/page" / f"{name}.js").read_text(encoding="utf-8")
    script = script[script.index("*/") + 2 :].strip()  # without the comment: gradio expects a function first
    for word, value in values.items():
        script = script.replace(word, json.dumps(value))
    return script


def sent_with(event: gr.EventData) -> dict[str, Any]:
    """The fields that the browser sent with an event; untrusted."""
    sent = event_data(event)
    return sent if isinstance(sent, dict) else {}


def visitor_of(request: gr.Request | None) -> Visitor:
    """The sender of an event. Gradio makes all tool calls in one session of its own, so each tool call counts as a new session."""
    if request is None or is_tool_call(request):
        return Visitor(secrets.token_hex(), client_address(request.client) if request else "")
    return Visitor(request.session_hash or "", client_address(request.client))


class StopFlag(threading.Event):
    """Tells a run to stop. If `is_dropped`, the run's further output is discarded. `name` identifies the run within its session."""

    def __init__(self, name: Any) -> None:
        super().__init__()
        self.is_dropped = False
        self.name = name
        self.ended = threading.Event()

    def drop(self) -> None:
        """Stop the run and discard its further output."""
        self.is_dropped = True
        self.set()


class Stops:
    """The stop flags of the runs in progress, one per browser session."""

    def __init__(self) -> None:
        self._flags: dict[str, StopFlag] = {}

    @contextmanager
    def running(self, request: gr.Request, name: Any = None) -> Iterator[StopFlag]:
        """Register a new run of the session and yield its flag. First drop a run in progress and wait up to `_ENDING` s for its end."""
        key, flag = request.session_hash or "", StopFlag(name)
        before, self._flags[key] = self._flags.get(key), flag  # from here on, the new run can be stopped
        try:
            if before:
                before.drop()
                before.ended.wait(_ENDING)  # so that the two do not count as two runs of one visitor
            yield flag
        finally:
            flag.ended.set()
            if self._flags.get(key) is flag:
                del self._flags[key]

    def stop(self, request: gr.Request, name: Any = None) -> None:
        """Stop the session's run if the run's name is `name`."""
        if (flag := self._flags.get(request.session_hash or "")) and flag.name == name:
            flag.set()

    def drop(self, request: gr.Request) -> None:
        """Stop the session's run and discard its further output."""
        if flag := self._flags.get(request.session_hash or ""):
            flag.drop()


def wire_run(
    page: gr.Blocks,
    run: Callable[[threading.Event, Progress, Visitor, dict[str, Any]], Iterator[Any]],
    *,
    triggers: Sequence[Any],
    buttons: tuple[gr.Button, gr.Button],
    inputs: Mapping[str, Component],
    view: gr.HTML,
) -> tuple[Callable[[gr.Request], None], Callable[[Any], None]]:
    """Let `triggers` start `run`, and show what `run` yields. Triggers do nothing while a run that a trigger started is in progress.

    Args:
        page: a session's run stops when its visitor leaves this page.
        run: called as (stop, progress, visitor, values of the inputs by name); yields values of the view. Must not raise, since gradio
            would show a notice that fades.
        triggers: events that start a run.
        buttons: Run and Stop.
        inputs: components whose values `run` gets, by name.
        view: shows what `run` yields; until the first yield it stays as it is.

    Returns:
        Two functions. `drop(request)` ends a session's run; call it before the view shows something else. `run_after(event)` lets a
        further event start a run, which replaces a run in progress.
    """
    stops = Stops()
    start, stop = buttons

    def serve(
        request: gr.Request,
        values: dict[Component, Any],
        progress: gr.Progress = gr.Progress(),  # noqa: B008
    ) -> Iterator[dict[Component, Any]]:
        # Downloads report progress from other threads, but gradio finds the run only in this call's context.
        context = copy_context()

        def report(fraction: float, text: str) -> None:
            context.copy().run(progress, fraction, desc=text)

        with stops.running(request) as flag:
            # Sent with every update: the end of a dropped run may reach the browser after this run's first update.
            goes_on: dict[Component, Any] = {
                start: gr.Button(interactive=False),
                stop: gr.Button(interactive=True),
            }
            yield goes_on
            if flag.is_dropped:
                return
            asked = {name: values[component] for name, component in inputs.items()}
            for value in run(flag, report, visitor_of(request), asked):
                # A dropped run ends with an empty update: gradio repeats the last update at the end.
                yield {view: gr.skip()} if flag.is_dropped else goes_on | {view: value}
                if flag.is_dropped:
                    return

    def starts(listen: Callable[..., Any], trigger_mode: str) -> None:
        ran = listen(
            serve,
            set(inputs.values()),
            [start, stop, view],
            show_progress_on=view,
            trigger_mode=trigger_mode,
            concurrency_limit=None,  # the scheduler has its own queue, and shows users their position
            api_visibility="private",
        )
        then_always(ran, None, None, [start, stop], js=page_script("run_ended"), **QUIET)

    starts(partial(gr.on, triggers), "once")
    stop.click(stops.stop, None, None, **QUIET)
    page.unload(stops.drop)
    return stops.drop, lambda event: starts(event.then, "always_last")


def grow(lines: Callable[..., Iterator[str]], *values: Any) -> Iterator[str]:
    """Yield the text of all lines of `lines(*values)` so far, as often as `streaming` allows, and always at an empty line and the end.

    An error becomes a last line of type "error", which the view shows. If the error were raised, gradio would show a notice that fades.
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
    """Count an answer as streaming within the context. Yields a function that returns the minimum seconds between two updates."""
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
