"""The end of the server: SIGINT and SIGTERM end it within seconds, whatever it is doing, and its child processes with it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    import gradio as gr

    from specviz.serving.service import Service

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SECONDS = 4.0
"""Time to end in order. A compilation or a download in this process cannot be interrupted: it is cut off."""
_STREAM_SECONDS = 1
"""Time for open streams; every open page has one."""


@contextmanager
def ended_by_signals(page: gr.Blocks, service: Service) -> Iterator[None]:
    """In here the first signal closes `service` and raises KeyboardInterrupt, which ends the context; the second ends the process.

    Files are written whole or not at all, so that the next start believes nothing that was cut off.
    """
    asked = threading.Event()

    def stop(_signal: int, _frame: object) -> None:
        if asked.is_set():
            _end_process()
        asked.set()
        raise KeyboardInterrupt

    def close() -> None:
        asked.wait()
        if server := getattr(page, "server", None):  # it has none before it is launched
            server.config.timeout_graceful_shutdown = _STREAM_SECONDS
        _kill_children()  # a pair that is being downloaded then fails to load, and its engine can be closed
        service.close()

    def give_up() -> None:
        asked.wait()
        time.sleep(_SECONDS)
        _end_process()

    # Started before any signal: a handler that interrupted a thread's start could start none.
    closing = threading.Thread(target=close, name="specviz-close", daemon=True)
    closing.start()
    threading.Thread(target=give_up, name="specviz-give-up", daemon=True).start()
    before = {each: signal.signal(each, stop) for each in _SIGNALS}
    try:
        with suppress(KeyboardInterrupt):
            yield
        if asked.is_set():
            closing.join(_SECONDS)  # `give_up` ends the process before
    finally:
        if not asked.is_set():
            for each, handler in before.items():
                signal.signal(each, handler)


def _kill_children() -> None:
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            child.kill()


def _end_process() -> None:
    """End at once. Python's own end would wait for threads."""
    _kill_children()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(0)
