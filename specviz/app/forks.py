"""Forks: runs that continue another run from one of its tokens, with other settings or another token.

Whatever the browser sends is untrusted: the trace passes the parser of trace files, and the settings pass a request's checks.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

from specviz.app.recorded import sent_run
from specviz.errors import RequestError
from specviz.schema.settings import Request
from specviz.serving.service import Service
from specviz.serving.visitor import Visitor

CHANGES = ("method", "lenience", "draft_length")
"""The settings that a fork may change."""
_UNFIT = "This fork cannot be made: the page sends other fields."


def asked_fork(sent: Any, inspect: int) -> tuple[str, Request]:
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
    if not isinstance(sent, dict) or not all(isinstance(sent.get(key), kind) for key, kind in kinds.items()):
        raise RequestError(_UNFIT)
    if not all(name in CHANGES for name in sent["changes"]):
        raise RequestError(_UNFIT)
    run = sent_run(sent["trace"])
    changes = sent["changes"] | {"inspect": inspect}
    return run.pair, run.fork(sent["tokens"], chosen=sent["chosen"], **changes)


def fork_id(sent: Any) -> int | None:
    """The id that the browser gave to the fork; None if it sent none."""
    found = sent.get("id") if isinstance(sent, dict) else None
    return found if type(found) is int else None


def fork_lines(
    service: Service, sent: Any, inspect: int, stop: threading.Event, visitor: Visitor
) -> Iterator[str]:
    """Serve a fork: yield {"type": "fork", "id"}, then the lines of its trace.

    If the pair is not loaded, {"type": "unloaded"} replaces the trace, since moving a slider must not load models. For arguments and errors
    see `asked_fork` and `Service.lines`.
    """
    yield json.dumps({"type": "fork", "id": fork_id(sent)}) + "\n"
    pair, request = asked_fork(sent, inspect)
    if not service.has_loaded(pair):
        yield json.dumps({"type": "unloaded"}) + "\n"
        return
    yield from service.lines(pair, request, stop, visitor=visitor)
