"""How a run reaches the browser: its stop flag, the pace of its updates, and failures told in a sentence.

Knows sessions, and lines of a view; knows neither the controls of a tab nor what the lines say.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gradio as gr
from gradio.components import Component

from specviz.errors import BROKEN, SpecvizError
from specviz.progress import Progress

log = logging.getLogger(__name__)

UPDATE_SECONDS = 0.2
"""Least time between two updates of a view."""
UPDATES_A_SECOND = 40
"""Of all views together, at most: where many stream at once, each is updated less often."""
QUIET: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
"""How small events are wired: at once, without a spinner, and for nobody but the page."""

# On a phone the view lies below the controls: whoever presses Run wants to see it.
_SCROLL_TO_VIEW = """() => {
  const view = document.getElementById(NAME);
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  if (innerWidth < 768) view.scrollIntoView({ behavior: calm ? "auto" : "smooth" });
}"""


_SESSIONS = 10_000
"""Of which the stop flags are kept."""


class Stops:
    """One stop flag for each browser session that runs or waits."""

    def __init__(self) -> None:
        self._flags: dict[str, threading.Event] = {}

    def arm(self, session: str) -> threading.Event:
        """A fresh flag for a session's next run."""
        while len(self._flags) >= _SESSIONS:  # whoever makes up sessions shall not fill the memory
            self._flags.pop(next(iter(self._flags)), None)
        flag = self._flags[session] = threading.Event()
        return flag

    def stop(self, session: str) -> None:
        """Ask the session's run, waiting or streaming, to end."""
        if flag := self._flags.get(session):
            flag.set()

    def flag(self, session: str) -> threading.Event:
        """The flag the session's run looks at."""
        return self._flags.get(session) or self.arm(session)

    def forget(self, session: str) -> None:
        """The session is gone: its run ends too."""
        self.stop(session)
        self._flags.pop(session, None)


def session_of(request: gr.Request | None) -> str:
    """The browser session that asks, by gradio's own name for it; "" where there is none."""
    return (request.session_hash if request else None) or ""


Lines = Callable[..., Iterator[str]]
"""Serves a run: (stop, progress, visitor, *values of the inputs) -> the lines that a view shows."""


def wire_run(
    page: gr.Blocks,
    lines: Lines,
    *,
    triggers: Sequence[Any],
    buttons: tuple[gr.Button, gr.Button],
    inputs: list[Component],
    view: gr.HTML,
) -> None:
    """Let `triggers` run `lines` on the values of `inputs` and stream them into `view`; `buttons` are Run and Stop."""

    def updates(stop: threading.Event, progress: Progress, visitor: str, *values: Any) -> Iterator[str]:
        return grow(lambda: lines(stop, progress, visitor, *values))

    wire_updates(page, updates, triggers=triggers, buttons=buttons, inputs=inputs, outputs=[view], view=view)


def wire_updates(
    page: gr.Blocks,
    updates: Callable[..., Iterator[Any]],
    *,
    triggers: Sequence[Any],
    buttons: tuple[gr.Button, gr.Button],
    inputs: list[Component],
    outputs: list[Component],
    view: gr.HTML,
) -> None:
    """Let `triggers` run `updates` and stream what they yield into `outputs`; `buttons` are Run and Stop.

    `updates` is called as (stop, progress, visitor, *values of the inputs) and must not raise. `view`, one of the outputs, is
    emptied first and brought into sight. A run and its Stop meet through a flag of the browser session's own.
    """
    stops = Stops()
    run, stop = buttons

    def begin(request: gr.Request) -> tuple[gr.Button, gr.Button, str]:
        stops.arm(session_of(request))
        return gr.Button(interactive=False), gr.Button(interactive=True), ""

    def serve(
        request: gr.Request,
        *values: Any,
        progress: gr.Progress = gr.Progress(),  # noqa: B008
    ) -> Iterator[Any]:
        def told(fraction: float, text: str) -> None:
            progress(fraction, desc=text)

        visitor = session_of(request)
        yield from updates(stops.flag(visitor), told, visitor, *values)

    def end() -> tuple[gr.Button, gr.Button]:
        return gr.Button(interactive=True), gr.Button(interactive=False)

    def halt(request: gr.Request) -> None:
        stops.stop(session_of(request))

    def leave(request: gr.Request) -> None:
        stops.forget(session_of(request))

    scroll = _SCROLL_TO_VIEW.replace("NAME", json.dumps(view.elem_id))
    asked = gr.on(triggers, begin, None, [run, stop, view], js=scroll, **QUIET)
    ran = asked.then(
        serve,
        inputs,
        outputs,
        show_progress_on=view,
        concurrency_limit=None,  # the engine has a queue of its own, and tells everybody's place
        api_visibility="private",
    )
    # In gradio 6.31 what `then` adds is left out after a failure, such as a full queue.
    ran.then(end, None, [run, stop], **QUIET)
    ran.failure(end, None, [run, stop], **QUIET)
    stop.click(halt, None, None, **QUIET)
    page.unload(leave)


def grow(lines: Callable[[], Iterator[str]]) -> Iterator[str]:
    """Yield all lines so far, at most every `UPDATE_SECONDS`, at an empty line, and once more at the end.

    What goes wrong becomes a last line of type "error" for the view. (Raised, it would be a toast that fades, and
    gradio would leave the buttons as they are while a run is on.)
    """
    value, shown = "", 0.0
    with Streaming() as streaming:
        try:
            for line in lines():
                value += line
                if not line or time.monotonic() - shown >= streaming.pause:
                    yield value
                    shown = time.monotonic()
        except Exception as error:
            value += error_line(in_a_sentence(error))
    yield value


class Streaming:
    """One of the answers that stream now, from its beginning to its end."""

    _lock = threading.Lock()
    _count = 0

    def __enter__(self) -> Streaming:
        self._add(1)
        return self

    def __exit__(self, *_: object) -> None:
        self._add(-1)

    @property
    def pause(self) -> float:
        """Least seconds between two of its updates."""
        return max(UPDATE_SECONDS, Streaming._count / UPDATES_A_SECOND)

    @staticmethod
    def _add(number: int) -> None:
        with Streaming._lock:
            Streaming._count += number


def in_a_sentence(error: Exception) -> str:
    """What people are told of an error; one that was not raised on purpose goes to the log."""
    if isinstance(error, SpecvizError):
        return str(error)
    log.error("a run failed", exc_info=error)
    return BROKEN


def error_line(message: str) -> str:
    """The last line of a run that broke off."""
    return json.dumps({"type": "error", "message": message}) + "\n"
