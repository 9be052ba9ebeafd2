"""The end of the server: SIGINT and SIGTERM end it within seconds, whatever it is doing, and its child processes with it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

import psutil

if TYPE_CHECKING:
    import gradio as gr

    from specviz.serving.service import Service

_SECONDS = 3.0
"""Time to end in order. A compilation or a download in this process cannot be interrupted: after this time it is cut off."""
_STREAM_SECONDS = 1
"""Time for open streams; every open page has one."""


def run_until_stopped(serve: Callable[[], object], page: gr.Blocks, service: Service) -> NoReturn:
    """Call `serve`, then end the process. The first signal interrupts `serve`; a second one ends the process at once.

    Before the end, `service` is closed, as far as time allows. Files are written completely or not at all, so that the next start never
    reads a truncated one.
    """
    ending = threading.Event()

    def stop(_signal: int, _frame: object) -> None:
        if ending.is_set():
            _end_process(0)
        ending.set()
        raise KeyboardInterrupt

    def close() -> None:
        ending.wait()
        if server := getattr(page, "server", None):  # it has none before it is launched
            server.config.timeout_graceful_shutdown = _STREAM_SECONDS
        _kill_children()  # a pair that is being downloaded then fails to load, and its engine can be closed
        service.close()

    def give_up() -> None:
        ending.wait()
        time.sleep(_SECONDS + 0.5)
        _end_process(0)

    # Started before any signal: a handler that interrupts the start of a thread cannot start another.
    closing = threading.Thread(target=close, name="specviz-close", daemon=True)
    closing.start()
    threading.Thread(target=give_up, name="specviz-give-up", daemon=True).start()
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, stop)
    code = 1
    try:
        serve()
        code = 0
    except KeyboardInterrupt:
        code = 0
    except Exception:
        traceback.print_exc()
    ending.set()
    closing.join(_SECONDS)
    _end_process(code)


def _kill_children() -> None:
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            child.kill()


def _end_process(code: int) -> NoReturn:
    """End at once. Python's normal exit waits for threads and takes seconds if one is busy."""
    _kill_children()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code)
