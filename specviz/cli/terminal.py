"""What commands have in common on a terminal: tables, and Ctrl-C as a flag that a long job looks at. Knows no job."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any


def print_table(rows: Sequence[tuple[str, ...]]) -> None:
    """Print rows with every column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def print_tables(tables: Iterable[Any]) -> None:
    """Print tables, each with its `title` over its `rows`."""
    for table in tables:
        print(f"\n{table.title}")
        print_table(table.rows)


@contextmanager
def interrupt() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets, so that the job ends well; a second one breaks off."""
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
