"""Traces for the view of one run: recorded runs, traces that a visitor opens, and forks, which continue a run from one of its tokens.

What a browser sends is untrusted. A visitor's trace is unpacked up to a limit and parsed, and the view gets the lines of the parsed run.
The trace arrives within an event and is never stored in a file. The settings of a fork are checked as those of any request.
"""

from __future__ import annotations

import base64
import threading
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from specviz.analysis.recorded_runs import RecordedRuns
from specviz.app.guard import MAX_BODY
from specviz.errors import BusyError, RequestError, TraceError
from specviz.schema.settings import Request
from specviz.schema.trace import MAX_DRAWN, Run, parse_trace
from specviz.serving.limits import Visitor
from specviz.serving.lines import record
from specviz.serving.service import Service

MAX_PACKED = MAX_BODY * 3 // 4 - 100_000
"""Largest packed trace, in bytes: in base64 it must fit into a request's body."""
_AT_ONCE = 2
"""Maximum number of traces parsed concurrently; a parsed trace takes about thirty times the memory of its file."""
_PATIENCE = 10.0
"""Maximum seconds that a trace waits until others are parsed."""
_parsing = threading.BoundedSemaphore(_AT_ONCE)
CHANGES = ("method", "lenience", "draft_length")
"""The settings that a fork may change."""
_UNFIT = "This fork cannot be made: the page sends other fields."


def recorded_value(
    runs: RecordedRuns, key: str, run: Run, *, plays: bool = False, show: int | None = None
) -> str:
    """The value of `TraceView` for the recorded run `key`: the trace of `run`, a description, the verifier's speed and the recorded forks.

    With `plays`, the view plays the run immediately. `show` is the index of the token to select.

    Raises:
        TraceError: a recorded fork is invalid.
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
        TraceError: the file is larger than `limit` bytes or `MAX_PACKED`, not text, or not a valid trace.
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
    """Parse a trace that a browser sent. Raises TraceError if it is invalid, BusyError if too many traces are being parsed."""
    if not _parsing.acquire(timeout=_PATIENCE):
        raise BusyError("Many visitors open traces now: try again in a moment.")
    try:
        # Not splitlines, since a string may contain U+2028.
        return parse_trace(text.split("\n"), most=MAX_DRAWN)
    finally:
        _parsing.release()


def _too_large(limit: int) -> str:
    return f"This file is too large: here a trace may have at most {limit / 1e6:g} MB, and {MAX_PACKED / 1e6:g} MB compressed."


def asked_fork(sent: Mapping[str, Any], inspect: int) -> tuple[str, Request]:
    """The pair and the request of a fork.

    Args:
        sent: what the browser sent: "trace" has the lines of the run; "tokens" is the number of the run's tokens to keep; "chosen" is the
            id of the token to write next, or None; "changes" has new values for settings in `CHANGES`.
        inspect: number of top tokens to record with each token.

    Raises:
        RequestError, TraceError: a field has the wrong form or does not fit the run.
        BusyError: too many traces are being parsed.
    """
    kinds = {"trace": str, "tokens": int, "chosen": int | None, "changes": dict}
    fits = all(isinstance(sent.get(key), kind) for key, kind in kinds.items())
    if not fits or not set(CHANGES).issuperset(sent["changes"]):
        raise RequestError(_UNFIT)
    run = sent_run(sent["trace"])
    return run.pair, run.fork(sent["tokens"], chosen=sent["chosen"], inspect=inspect, **sent["changes"])


def fork_id(sent: Mapping[str, Any]) -> int | None:
    """The id that the browser gave to the fork; None if it sent none."""
    found = sent.get("id")
    return found if type(found) is int else None


def fork_lines(
    service: Service, sent: Mapping[str, Any], inspect: int, stop: threading.Event, visitor: Visitor
) -> Iterator[str]:
    """Serve a fork: yield a line {"type": "fork", "id"}, then the lines of its trace.

    If the pair is not loaded, a line {"type": "unloaded"} replaces the trace, since moving a slider must not load models. For arguments
    and errors see `asked_fork` and `Service.lines`.
    """
    yield record("fork", id=fork_id(sent))
    pair, request = asked_fork(sent, inspect)
    if not service.has_loaded(pair):
        yield record("unloaded")
        return
    yield from service.lines(pair, request, stop, visitor=visitor)
