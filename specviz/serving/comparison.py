"""Compares requests on one pair or several. Yields lines of JSON.

The lines are those of `specviz.serving.lines`, where lines of a trace also have their "pane", and two others:
{"type": "compare", "panes"} comes before the first trace; {"type": "table", "rows", "says"} replaces the previous table, and its "says"
is `analysis.metrics.headline`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any

from specviz.analysis.quality import mean_log_probability
from specviz.engine.engine import BaseEngine
from specviz.engine.events import Event, Waiting
from specviz.schema.settings import Request
from specviz.schema.trace import Run
from specviz.serving.lines import record, table_line, tagged, trace_lines


def compare(
    engines: Sequence[BaseEngine], requests: Sequence[Request], stop: threading.Event, **more: Any
) -> Iterator[str]:
    """Serve requests side by side, then compare them and let the verifier score them.

    Args:
        engines: the engine of each request. Requests of one engine share their batch.
        requests: one per pane.
        stop: ends the run before the next round.
        more: further arguments of `engine.stream`.

    Yields:
        Lines.

    Raises:
        RequestError, BusyError, EngineError: as `engine.stream` does.
    """
    events = together(engines, requests, lambda engine, some: engine.stream(some, stop=stop, **more))
    runs = yield from side_by_side(events, len(requests))
    if not stop.is_set():
        quality = [
            mean_log_probability(engine.pair, run.prompt_ids, run.token_ids, engine.call)
            for engine, run in zip(engines, runs, strict=True)
        ]
        yield table_line(runs, quality)


def together(
    keys: Sequence[Any],
    requests: Sequence[Request],
    stream: Callable[[Any, list[Request]], Iterator[Event | Waiting]],
) -> Iterator[Event | Waiting]:
    """The events of all requests, alternating between keys. `stream(key, requests)` serves one key. Events have the indices of `requests`."""
    with ExitStack() as stack:
        turns: deque[tuple[Iterator[Event | Waiting], list[int]]] = deque()
        for key in dict.fromkeys(keys):
            own = [at for at, each in enumerate(keys) if each == key]
            events = stream(key, [requests[at] for at in own])
            turns.append((stack.enter_context(closing(events)), own))  # type: ignore[type-var]
        while turns:
            events, own = turns.popleft()
            event = next(events, None)
            if event is not None:
                turns.append((events, own))
                yield replace(event, index=own[event.index])


def side_by_side(events: Iterable[Event | Waiting], count: int) -> Generator[str, None, list[Run]]:
    """Yields the lines of `count` runs and a first table; returns the runs."""
    runs: dict[int, Run] = {}
    opening = record("compare", panes=count)
    for index, line in trace_lines(events, runs):
        if index is not None:
            yield from [opening] if opening else []
            opening = ""
        yield line if index is None else tagged(index, line)
    written = [runs[index] for index in range(count)]
    yield table_line(written)
    return written
