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

from specviz.errors import SpecvizError

if TYPE_CHECKING:
    import gradio as gr

    from specviz.serving.service import Service

_SECONDS = 3.0
"""Time to end in order. A compilation or a download in this process cannot be interrupted: it is cut off."""
_STREAM_SECONDS = 1
"""Time for open streams; every open page has one."""


def run_until_stopped(serve: Callable[[], object], page: gr.Blocks, service: Service) -> NoReturn:
    """Call `serve`, and end the process after it: when it returns or fails, or at the first signal, which interrupts it.

    `service` is closed first, as far as that goes in time; a second signal ends the process at once. Files are written whole or not at
    all, so that the next start believes nothing that was cut off.
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

    # Started before any signal: a handler that interrupted a thread's start could start none.
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
    except SpecvizError as error:
        print(error, file=sys.stderr)
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
    """End at once. Python's own end would wait for threads, and takes seconds beside a busy one."""
    _kill_children()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code)
