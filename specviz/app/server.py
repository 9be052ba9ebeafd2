"""The server: builds the page, loads the first pair in the background, and serves until SIGINT or SIGTERM. These signals end the server
and its child processes within seconds, whatever the server is doing.

Neither this module nor the page imports torch; loading the first pair does. So `build` can set environment variables that torch
reads at import, and the page answers a second earlier.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import os
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import psutil

from specviz import environment
from specviz.errors import SpecvizError, quoted
from specviz.models.registry import DEFAULT_PAIR
from specviz.progress import TerminalProgress
from specviz.serving import logs
from specviz.serving.offer import default_pair

if TYPE_CHECKING:
    import gradio as gr

    from specviz.app.classroom import Classroom
    from specviz.serving.service import Service

_START_SECONDS = 60.0
"""Maximum seconds without garbage collection while the first pair loads; a download can take minutes."""

_M_ARENA_MAX, _ARENAS = -8, 2
"""A parameter of glibc's `mallopt`, and the value to set: the maximum number of arenas."""
_END_SECONDS = 3.0
"""Seconds for an orderly shutdown. A compilation or download in this process cannot be interrupted; it is aborted after this time."""
_STREAM_SECONDS = 1
"""Seconds that open streams get to finish at shutdown; every open page has a stream."""
NO_TEMPORARY_FOLDER = (
    "No folder for temporary files can be written: free some disk space, or set TMPDIR to a folder that can."
)


def build(for_class: bool = False) -> tuple[gr.Blocks, Service, Classroom | None]:
    """Build the page, its service, and the class if there is one (`for_class`, or SPECVIZ_CLASS=1).

    Call this in the main thread before torch is imported.

    Raises:
        SystemExit: an environment variable is invalid, or there is no folder for temporary files; the message says which.
    """
    with _exit_with_sentence():
        environment.check()
        try:
            tempfile.gettempdir()  # without a temporary folder, gradio cannot be imported
        except OSError:
            raise SpecvizError(NO_TEMPORARY_FOLDER) from None
        # OpenMP threads that spin lose two thirds of their speed if the page needs a core too. Must be set before torch is imported.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        # By default glibc has up to eight arenas per core. Memory freed in one arena serves only its threads, so a server would grow.
        with suppress(OSError, AttributeError, TypeError):
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _ARENAS)
        on_zero_gpu = environment.on_zero_gpu()
        if on_zero_gpu:
            from specviz.serving import zerogpu

            zerogpu.start()  # must also run before torch is imported
        if environment.on_space():
            # Only the Space's own proxies reach the server. From these addresses uvicorn trusts X-Forwarded-For.
            proxies = "127.0.0.1,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16"
            os.environ.setdefault("FORWARDED_ALLOW_IPS", proxies)
        for_class = for_class or environment.CLASS.value()
        if for_class:
            # Must be set before the offered pairs are read, which happens once.
            os.environ[environment.PAIRS_OFFERED.name] = environment.PAIRS_OFFERED.value() or DEFAULT_PAIR
        with _without_collections():
            from specviz.app.classroom import Classroom, class_address
            from specviz.app.page import build_page
            from specviz.serving.limits import CLASS, Limits
            from specviz.serving.service import Service

            limits = Limits.from_environment(usual=CLASS if for_class else None)
            service = zerogpu.ZeroGpuService(limits) if on_zero_gpu else Service(limits)
            classroom = Classroom(class_address(environment.PORT.value())) if for_class else None
            return build_page(service, classroom), service, classroom


@contextmanager
def _exit_with_sentence() -> Iterator[None]:
    """Turn a `SpecvizError` into a SystemExit with the same message."""
    try:
        yield
    except SpecvizError as error:
        sys.exit(str(error))


@contextmanager
def _without_collections() -> Iterator[None]:
    """Pause garbage collection, then exempt all existing objects from it for good.

    These objects live as long as the server. Scanning them takes a sixth of the start-up time and would delay every text.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


def serve(page: gr.Blocks, service: Service, classroom: Classroom | None = None) -> NoReturn:
    """Print the addresses of a class, load the default pair in the background, and serve until SIGINT or SIGTERM, which end the process.

    Raises:
        SystemExit: the page cannot be served on HOST and PORT; the message says why.
    """
    from specviz.app.page import host, launch

    for name in ("stdout", "stderr"):
        if stream := getattr(sys, name):
            setattr(sys, name, _LastingStream(stream))
    with _exit_with_sentence():
        _check_address(host(classroom is not None), environment.PORT.value())
    logs.configure()
    if classroom:
        print(_told(classroom), flush=True)

    def begin() -> None:
        loading = service.warm_up(default_pair(), TerminalProgress(sys.stderr))

        def wait() -> None:
            with _without_collections():
                futures.wait([loading], _START_SECONDS)

        threading.Thread(target=wait, name="specviz-start", daemon=True).start()
        launch(page, service, classroom)

    _run_until_stopped(begin, page, service)


def _run_until_stopped(serve: Callable[[], object], page: gr.Blocks, service: Service) -> NoReturn:
    """Call `serve`, then end the process. The first signal interrupts `serve`; a second signal ends the process immediately.

    Before the end, `service` is closed, as far as time allows. Files are written completely or not at all, so that the next start never
    reads a truncated file.
    """
    ending = threading.Event()

    def stop(_signal: int, _frame: object) -> None:
        if ending.is_set():
            _end_process(0)
        ending.set()
        raise KeyboardInterrupt

    def close() -> None:
        ending.wait()
        if server := getattr(page, "server", None):  # a page has none before it is launched
            server.config.timeout_graceful_shutdown = _STREAM_SECONDS
        _kill_children()  # a pair that is being downloaded then fails to load, and its engine can be closed
        service.close()

    def give_up() -> None:
        ending.wait()
        time.sleep(_END_SECONDS + 0.5)
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
    closing.join(_END_SECONDS)
    _end_process(code)


def _kill_children() -> None:
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            child.kill()


def _end_process(code: int) -> NoReturn:
    """End the process immediately. Python's normal exit waits for threads, and takes seconds if a thread is busy."""
    _kill_children()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code)


class _LastingStream:
    """A text stream that drops output that cannot be written: to a full disk, or to a pipe whose reader has ended."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()


def _check_address(host: str, port: int) -> None:
    """Raise SpecvizError if this process cannot listen on `host` and `port`."""
    failed = list[int | None]()
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        found = []
    for family, *_, address in found:
        try:
            socket.create_server(address, family=family).close()
        except OSError as error:
            failed.append(error.errno)
    if errno.EADDRINUSE in failed:
        raise SpecvizError(f"PORT is {port}, which another program uses; it must be a free port.")
    if errno.EACCES in failed:
        raise SpecvizError(f"PORT is {port}, which this user may not use; it must be at least 1024.")
    if len(failed) == len(found):  # a name may have several addresses, of which only some are this machine's
        raise SpecvizError(f"HOST is {quoted(host)}; it must be a name or an address of this machine.")


def _told(classroom: Classroom) -> str:
    """The text printed at the start of a class. Only here is the teacher's address shown."""
    return f"""For a class: everybody on this network can open the page, on every interface of this machine unless HOST says otherwise.
  For everybody:      {classroom.address}
  For the projector:  {classroom.address}class
  For you alone:      {classroom.teachers_address}
"""


def main(for_class: bool = False) -> None:
    """Build the page and serve it."""
    serve(*build(for_class))


if __name__ == "__main__":
    main()
