"""Forks: runs that continue another run from one of its tokens, with other settings or another token.

Whatever the browser sends is untrusted: the trace passes the parser of trace files, and the settings pass a request's checks.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

from specviz.app.recorded import sent_run
from specviz.errors import RequestError
from specviz.schema.settings import Request
from specviz.serving.limits import Visitor
from specviz.serving.lines import record
from specviz.serving.service import Service

CHANGES = ("method", "lenience", "draft_length")
"""The settings that a fork may change."""
_UNFIT = "This fork cannot be made: the page sends other fields."


def asked_fork(sent: Mapping[str, Any], inspect: int) -> tuple[str, Request]:
    """The pair and the request of a fork.

    Args:
        sent: what the browser sent: "trace" has the lines of the run; "tokens" is the number of its tokens to keep; "chosen" is the
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
    """Serve a fork: yield {"type": "fork", "id"}, then the lines of its trace.

    If the pair is not loaded, {"type": "unloaded"} replaces the trace, since moving a slider must not load models. For arguments and errors
    see `asked_fork` and `Service.lines`.
    """
    yield record("fork", id=fork_id(sent))
    pair, request = asked_fork(sent, inspect)
    if not service.has_loaded(pair):
        yield record("unloaded")
        return
    yield from service.lines(pair, request, stop, visitor=visitor)
