"""Forks asked for on the stage: a run that goes on from one of its tokens, at other settings or with another token there.

What the browser sends is untrusted: the run's beginning is a trace, read by the parser that reads files, and what it asks for is
checked as every request is. Knows no page and draws nothing.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

from specviz.errors import RequestError
from specviz.schema.settings import Request
from specviz.schema.trace import parse_trace
from specviz.serving.service import Service

CHANGES = ("method", "lenience", "draft_length")
"""The settings that a fork may change."""
_UNFIT = "This fork cannot be made: what was asked for is not what the page sends."


def asked_fork(sent: Any, inspect: int) -> tuple[str, Request]:
    """The pair and the request of a fork, from what the browser sent.

    Args:
        sent: {"trace", "tokens", "chosen", "changes"}: the lines of a trace that has at least `tokens` tokens; how many of them are
            kept; the id of a token to put in the next place, or None; other values of `CHANGES`, by name.
        inspect: most probable tokens recorded at every token, whatever the run recorded.

    Raises:
        RequestError, TraceError: it is not of this form, or not what a run can be forked by.
    """
    kinds = {"trace": str, "tokens": int, "chosen": int | None, "changes": dict}
    if not isinstance(sent, dict) or not all(isinstance(sent.get(key), kind) for key, kind in kinds.items()):
        raise RequestError(_UNFIT)
    if not all(name in CHANGES for name in sent["changes"]):
        raise RequestError(_UNFIT)
    run = parse_trace(sent["trace"].split("\n"))  # not splitlines: U+2028 may stand inside a string
    changes = sent["changes"] | {"inspect": inspect}
    return run.pair, run.fork(sent["tokens"], chosen=sent["chosen"], **changes)


def fork_id(sent: Any) -> int | None:
    """The page's own id of a fork, from what the browser sent; None where it is none."""
    found = sent.get("id") if isinstance(sent, dict) else None
    return found if type(found) is int else None


def fork_lines(
    service: Service, sent: Any, inspect: int, stop: threading.Event, visitor: str
) -> Iterator[str]:
    """Serve a fork; yields {"type": "fork", "id"} with the page's own id of it, then the lines of its trace.

    Where no models are loaded that could write it, {"type": "unloaded"} comes in place of the trace: a finger on a slider is no
    reason to load some. Arguments as for `asked_fork` and `Service.lines`.

    Raises:
        SpecvizError: as these do.
    """
    yield json.dumps({"type": "fork", "id": fork_id(sent)}) + "\n"
    pair, request = asked_fork(sent, inspect)
    if not service.has_loaded(pair):
        yield json.dumps({"type": "unloaded"}) + "\n"
        return
    yield from service.lines(pair, request, stop, visitor=visitor)
