"""Several requests side by side: one batch, then each alone, told line by line.

The lines are JSON objects: {"type": "compare", "panes"} first; every line of a pane's trace with its "pane";
{"type": "doing", "text"} before something is measured, and an empty line, which asks to show what has come;
{"type": "said", "text"} where that could not be; {"type": "waiting", "place"} and an empty line while there is no free row;
{"type": "table", "rows"} as often as there is more to say, the last one counts. Knows the engine and the metrics;
knows no page.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from specviz.analysis.metrics import BASELINE, table
from specviz.analysis.quality import mean_log_probability
from specviz.engine.engine import Decided, Engine, Event, Finished, Waiting
from specviz.errors import EngineError, is_out_of_memory
from specviz.schema.settings import Request
from specviz.schema.trace import CUT, Run, end_line, header_line, round_line

if TYPE_CHECKING:
    from specviz.serving.shared_engine import SharedEngine


_COMPANY = "Others’ texts are being written too: what each pane takes alone cannot be measured just now."


def compare(
    engine: Engine | SharedEngine,
    requests: Sequence[Request],
    stop: threading.Event,
    *,
    measure_alone: bool = True,
    **more: Any,
) -> Iterator[str]:
    """Serve all requests as one batch, then say how they compare; yields lines.

    Args:
        engine: serves the batch, and then each request by itself.
        requests: one a pane; their settings but method, lenience and draft length should agree.
        stop: ends the run, or the measuring, before the next round.
        measure_alone: serve each request again by itself, and verifier_only unless it is among them: speeds that
            are nobody else's. What was measured before a stop is kept; what others shared is not counted.
        more: what else `engine.stream` takes.

    Raises:
        RequestError, BusyError, EngineError: as `engine.stream` does.
    """
    runs = yield from side_by_side(engine.stream(requests, stop=stop, **more), len(requests))
    measured = _Measured(engine, runs, more)
    if stop.is_set():
        return
    yield from doing("Asking the verifier how likely it finds each text")
    measured.score()
    yield measured.line()
    if not measure_alone:
        return
    for place, request in measured.order(requests):
        yield from doing(f"Measuring {'the verifier' if place is None else f'pane {place + 1}'} alone")
        outcome = yield from measured.serve(place, request, stop)
        if outcome == "company":
            yield record("said", text=_COMPANY)
        if outcome:
            return
        yield measured.line()


def side_by_side(events: Iterable[Event | Waiting], count: int) -> Generator[str, None, list[Run]]:
    """The lines of `count` runs as they are written, then what they say of each other; returns the runs."""
    runs: dict[int, Run] = {}
    for event in events:
        if isinstance(event, Waiting):
            yield from [""] if runs else waiting(event.place)
            continue
        if event.index not in runs:  # also where a stop came before the start
            if not runs:
                yield record("compare", panes=count)
            runs[event.index] = event.run
            yield tagged(event.index, header_line(event.run))
        if isinstance(event, Decided):
            yield tagged(event.index, round_line(event.round))
        elif isinstance(event, Finished):
            yield tagged(event.index, end_line(event.run))
    written = [runs[index] for index in range(count)]
    nothing = [None] * count
    yield record("table", rows=table(written, nothing, None, nothing))
    return written


class _Measured:
    """What is known so far of the runs of one batch."""

    def __init__(self, engine: Engine | SharedEngine, runs: list[Run], more: dict[str, Any]) -> None:
        self._engine, self._more = engine, more
        self._runs = runs
        self._alone: list[Run | None] = [None] * len(runs)
        self._quality: list[float | None] = [None] * len(runs)
        self._baseline: Run | None = None

    def line(self) -> str:
        """The table as it stands."""
        return record("table", rows=table(self._runs, self._alone, self._baseline, self._quality))

    def score(self) -> None:
        """Quality of every text under the verifier."""
        pair, runs = self._engine.pair, self._runs
        try:
            # One at a time, so that others' rounds come between.
            asked = (partial(mean_log_probability, pair, run.prompt_ids, run.token_ids) for run in runs)
            self._quality = [self._engine.call(each) for each in asked]
        except Exception as error:
            if is_out_of_memory(error):
                raise EngineError(
                    "Memory ran out while the texts were scored: ask for fewer tokens."
                ) from error
            raise

    def order(self, requests: Sequence[Request]) -> list[tuple[int | None, Request]]:
        """Who is measured alone, the baseline first: with it every further row is complete. Place None is no pane."""
        places = sorted(range(len(requests)), key=lambda place: requests[place].method != BASELINE)
        order: list[tuple[int | None, Request]] = [(place, requests[place]) for place in places]
        if requests[places[0]].method != BASELINE:
            order.insert(0, (None, replace(requests[0], method=BASELINE, lenience=0.0)))
        return order

    def serve(self, place: int | None, request: Request, stop: threading.Event) -> Generator[str, None, str]:
        """Serve one request by itself, without inspection, which would cost time. Returns "" where it was measured,
        else what came between: "stop" or "company"."""
        for event in self._engine.stream(replace(request, inspect=0), stop=stop, **self._more):
            if isinstance(event, Waiting):
                yield ""
            elif event.run.neighbours:
                return "company"
            elif isinstance(event, Finished) and event.run.stop_reason not in CUT:
                if request.method == BASELINE:
                    self._baseline = self._baseline or event.run
                if place is not None:
                    self._alone[place] = event.run
                return ""
        return "stop"


def tagged(pane: int, line: str) -> str:
    """A line of a trace as a line of its pane."""
    return f'{{"pane":{pane},{line[1:]}'


def waiting(place: int) -> Iterator[str]:
    """There is no free row yet; `place` is the one in the queue."""
    yield record("waiting", place=place)
    yield ""


def doing(text: str) -> Iterator[str]:
    """What is going on until the next table."""
    yield record("doing", text=text)
    yield ""


def record(kind: str, **values: Any) -> str:
    """One line."""
    return json.dumps({"type": kind} | values, ensure_ascii=False, allow_nan=False) + "\n"
