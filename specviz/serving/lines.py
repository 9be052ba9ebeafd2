"""Events as lines of JSON: the one place that makes what a page reads of runs while they are served.

A run is its trace, line by line; beside it there are {"type": "waiting", "queue_position"} while requests are queued, and an empty
line, which asks to show what has come so far. Knows events and the file format of traces; knows no engine and no page.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from specviz.engine.events import Decided, Event, Finished, Waiting
from specviz.schema.trace import Run
from specviz.schema.trace_file import end_line, header_line, round_line


def trace_lines(events: Iterable[Event | Waiting], runs: dict[int, Run]) -> Iterator[tuple[int | None, str]]:
    """The lines of runs' traces as they are written, each with its run's index; None with lines of the queue.

    Runs are put into `runs` as they begin. After a run's first round comes an empty line.
    """
    shown: set[int] = set()
    for event in events:
        if isinstance(event, Waiting):
            yield from ((None, line) for line in ([""] if runs else waiting(event.queue_position)))
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


def waiting(queue_position: int) -> Iterator[str]:
    """The requests are queued at this position."""
    yield record("waiting", queue_position=queue_position)
    yield ""


def record(kind: str, **values: Any) -> str:
    """One line."""
    return json.dumps({"type": kind} | values, ensure_ascii=False, allow_nan=False) + "\n"
