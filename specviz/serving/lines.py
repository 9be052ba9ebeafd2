"""Turns events into lines of JSON, which the page reads while runs are served.

A run becomes the lines of its trace. {"type": "waiting", "queue_position"} comes while requests are queued. An empty line tells the
page to show the lines received so far. In a comparison, lines of a trace also have their "pane"; {"type": "compare", "panes"} comes before
the first trace; {"type": "table", "rows", "says"} replaces the previous table, and its "says" is `analysis.metrics.headline`.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any

from specviz.analysis.metrics import headline, table
from specviz.engine.events import Decided, Event, Finished, Loading, Waiting
from specviz.schema.settings import Request
from specviz.schema.trace import Run
from specviz.schema.trace_file import end_line, header_line, round_line


def trace_lines(events: Iterable[Event | Waiting], runs: dict[int, Run]) -> Iterator[tuple[int | None, str]]:
    """Yields (index of the run, line of its trace). For "waiting" lines and empty lines the index is None.

    Runs are added to `runs` as they begin. An empty line follows each `Waiting` event and each run's first round.
    """
    shown: set[int] = set()
    for event in events:
        if isinstance(event, Waiting):
            if not runs and not isinstance(event, Loading):
                yield None, record("waiting", queue_position=event.queue_position)
            yield None, ""
            continue
        if event.index not in runs:  # `Finished` comes first if a run was stopped before it started
            runs[event.index] = event.run
            yield event.index, header_line(event.run)
        if isinstance(event, Decided):
            yield event.index, round_line(event.round)
            if event.index not in shown:
                shown.add(event.index)
                yield None, ""
        elif isinstance(event, Finished):
            yield event.index, end_line(event.run)


def together(
    keys: Sequence[Any],
    requests: Sequence[Request],
    stream: Callable[[Any, list[Request]], Iterator[Event | Waiting]],
) -> Iterator[Event | Waiting]:
    """The events of all requests, from each key in turn. `stream` serves the requests of one key. Indices refer to `requests`."""
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
    """Yields the lines of `count` runs, then a table without scores; returns the runs."""
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


def record(kind: str, **values: Any) -> str:
    """A line of type `kind`."""
    return json.dumps({"type": kind} | values, ensure_ascii=False, allow_nan=False) + "\n"


def tagged(pane: int, line: str) -> str:
    """A line of a trace, with its pane added."""
    return f'{{"pane":{pane},{line[1:]}'


def table_line(
    runs: Sequence[Run], quality: Sequence[float | None] | None = None, **columns: Sequence[Any]
) -> str:
    """A line with the table of a comparison, further `columns` by name, and the sentence that the page shows above the table."""
    rows = [
        row | {name: column[at] for name, column in columns.items()}
        for at, row in enumerate(table(runs, quality))
    ]
    return record("table", rows=rows, says=headline(runs))
