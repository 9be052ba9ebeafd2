"""Output streams for a server, which survive failures to write: a log on a full disk, a pipe that nobody reads any more."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any, TextIO


class LastingStream:
    """A text stream that drops what cannot be written."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write `text`, or drop it."""
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, or do not."""
        with suppress(OSError):
            self._stream.flush()


def let_output_fail() -> None:
    """From now on, ignore failures to write to standard output and standard error."""
    for name in ("stdout", "stderr"):
        if stream := getattr(sys, name):
            setattr(sys, name, LastingStream(stream))
