"""Events as lines of JSON, which the page reads while runs are served.

A run is its trace, line by line. Besides, {"type": "waiting", "queue_position"} comes while requests are queued, and an empty
line asks the page to show what has come so far.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from specviz.engine.events import Decided, Event, Finished, Waiting
from specviz.schema.trace import Run
from specviz.schema.trace_file import end_line, header_line, round_line


def trace_lines(events: Iterable[Event | Waiting], runs: dict[int, Run]) -> Iterator[tuple[int | None, str]]:
    """Lines of traces, each with its run's index; None with lines of the queue and empty lines.

    Runs are put into `runs` as they begin. After a run's first round comes an empty line.
    """
    shown: set[int] = set()
    for event in events:
        if isinstance(event, Waiting):
            if not runs:
                yield None, record("waiting", queue_position=event.queue_position)
            yield None, ""
            continue
        if event.index not in runs:  # also after a stop before the start
            runs[event.index] = event.run
            yield event.index, header_line(event.run)
        if isinstance(event, Decided):
            yield event.index, round_line(event.round)
            if event.index not in shown:
                shown.add(event.index)
                yield None, ""
        elif isinstance(event, Finished):
            yield event.index, end_line(event.run)


def record(kind: str, **values: Any) -> str:
    """One line."""
    return json.dumps({"type": kind} | values, ensure_ascii=False, allow_nan=False) + "\n"
