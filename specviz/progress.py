"""The progress of a long job: a callback, and a line on a terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import TextIO

Progress = Callable[[float, str], None]
"""Called with the fraction done, in [0, 1], and a few words about the current stage."""


def silent(fraction: float, text: str) -> None:
    """Report nothing."""


def part(report: Progress, start: float, end: float) -> Progress:
    """The progress of one part of a job: maps [0, 1] to [`start`, `end`] of `report`."""
    return lambda fraction, text: report(start + (end - start) * fraction, text)


class TerminalProgress:
    """On a terminal, one line that is overwritten; elsewhere, a new line for each stage."""

    def __init__(self, stream: TextIO) -> None:
        """Write to `stream`."""
        self._stream, self._stage = stream, ""

    def __call__(self, fraction: float, text: str) -> None:
        """Show `fraction` (0 to 1; 1 ends the line) and `text` ("stage" or "stage: detail")."""
        stage = text.partition(": ")[0]
        if self._stream.isatty():
            end = "\n" if fraction >= 1 else ""
            print(f"\r\x1b[K{fraction:4.0%} {text}", end=end, file=self._stream, flush=True)
        elif stage != self._stage:
            print(stage, file=self._stream, flush=True)
        self._stage = stage
