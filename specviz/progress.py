"""Progress: how far a long job is, as a call; and on a terminal, as one line. Knows nothing of the job."""

from __future__ import annotations

from collections.abc import Callable
from typing import TextIO

Progress = Callable[[float, str], None]
"""Called as work goes on with the fraction done, in [0, 1], and a few words on what is being done."""


def silent(fraction: float, text: str) -> None:
    """The progress of a caller who wants to hear of none."""


def part(report: Progress, start: float, end: float) -> Progress:
    """The progress of a part of the work: its 0 to 1 is `start` to `end` of `report`."""
    return lambda fraction, text: report(start + (end - start) * fraction, text)


class TerminalProgress:
    """One line that is written over on a terminal; one line for each new stage anywhere else."""

    def __init__(self, stream: TextIO) -> None:
        """Write to `stream`."""
        self._stream, self._stage = stream, ""

    def __call__(self, fraction: float, text: str) -> None:
        """Say that a job is at `fraction` (0 to 1), doing `text` ("stage" or "stage: detail"); 1 ends the line."""
        stage = text.partition(":")[0]
        if self._stream.isatty():
            end = "\n" if fraction >= 1 else ""
            print(f"\r\x1b[K{fraction:4.0%} {text}", end=end, file=self._stream, flush=True)
        elif stage != self._stage:
            print(stage, file=self._stream, flush=True)
        self._stage = stage
