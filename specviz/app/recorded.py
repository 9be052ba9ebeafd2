"""Makes the view's values from recorded runs and from traces that a visitor opens.

A visitor's trace is untrusted: it is unpacked up to a limit and parsed, and the view gets the lines of the parsed run. It comes within
an event and is never a file, so nothing of it remains.
"""

from __future__ import annotations

import base64
import threading
import zlib
from typing import Any

from specviz.analysis.recorded_runs import RecordedRuns
from specviz.app.guard import MAX_BODY
from specviz.errors import BusyError, TraceError
from specviz.schema.trace import MAX_DRAWN, Run, parse_trace
from specviz.serving.lines import record

MAX_PACKED = MAX_BODY * 3 // 4 - 100_000
"""Largest packed trace, in bytes: in base64 it must fit into a request's body."""
_AT_ONCE = 2
"""Most visitors' traces that are parsed at once; a parsed trace takes about thirty times the memory of its file."""
_PATIENCE = 10.0
"""Longest time, in seconds, that a visitor's trace waits for others."""
_parsing = threading.BoundedSemaphore(_AT_ONCE)


def recorded_value(
    runs: RecordedRuns, key: str, run: Run, *, plays: bool = False, show: int | None = None
) -> str:
    """The recorded run of that key for the view, with its description, the verifier's speed and its forks.

    If `plays`, the view plays the run at once. `show` is the index of the token to select.

    Raises:
        TraceError: one of its forks cannot be read.
    """
    told = next(run for run in runs.runs if run.key == key)
    lines = [
        *run.lines(),
        record("recorded", title=told.title, story=told.story, plays=plays),
        record("yardstick", seconds_per_token=runs.verifier_only_seconds_per_token, machine=runs.machine),
    ]
    if branches := runs.branches(key):
        traces = {lenience: fork.lines() if fork else () for lenience, fork in branches.items()}
        found = [{"lenience": lenience, "trace": "".join(trace)} for lenience, trace in traces.items()]
        lines.append(record("branches", leniences=found))
    if show is not None:
        lines.append(record("show", index=show))
    return "".join(lines)


def opened_run(packed: Any, limit: int) -> Run:
    """The run of a visitor's file. `packed` is from `static/page/open_trace.js`: gzip in base64; None if the file was too large.

    Raises:
        TraceError: it is larger than `limit` bytes or `MAX_PACKED`, not text, or not a trace that can be shown.
        BusyError: too many traces are being parsed.
    """
    if packed is None:
        raise TraceError(_too_large(limit))
    try:
        content = zlib.decompressobj(wbits=31).decompress(base64.b64decode(packed, validate=True), limit + 1)
    except (TypeError, ValueError, zlib.error) as error:
        raise TraceError("The file did not arrive: open it again.") from error
    if len(content) > limit:
        raise TraceError(_too_large(limit))
    try:
        return sent_run(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise TraceError("This is not a SpecViz trace: it must be a text file of JSON lines.") from error


def sent_run(text: str) -> Run:
    """The run of a trace that came from a browser. Raises TraceError, or BusyError if too many traces are being parsed."""
    if not _parsing.acquire(timeout=_PATIENCE):
        raise BusyError("Many visitors open traces now: try again in a moment.")
    try:
        # Not splitlines, since a string may contain U+2028.
        return parse_trace(text.split("\n"), most=MAX_DRAWN)
    finally:
        _parsing.release()


def _too_large(limit: int) -> str:
    return f"This file is too large: here a trace may have at most {limit / 1e6:g} MB, and {MAX_PACKED / 1e6:g} MB compressed."
