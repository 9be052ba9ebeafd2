"""Output streams, tables and Ctrl-C for the commands."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress


def prepare_streams() -> None:
    """Let both output streams accept any text: characters outside their encoding become escapes, such as \\u65e5."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def drop_output() -> None:
    """Drop pending output that standard output did not accept. Otherwise Python would write it again at exit and print an error."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_table(rows: Sequence[tuple[str, ...]]) -> None:
    """Print rows in aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


@contextmanager
def interrupt() -> Iterator[threading.Event]:
    """Yield an event that the first Ctrl-C sets, so that the job can shut down. A second Ctrl-C raises KeyboardInterrupt as usual."""
    stop = threading.Event()
    before = signal.getsignal(signal.SIGINT)

    def ask_to_stop(_signal: int, _frame: object) -> None:
        stop.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, ask_to_stop)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
