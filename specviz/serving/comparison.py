"""Several requests side by side: one batch, then each alone, as lines of JSON.

Beside the lines of `specviz.serving.lines`: {"type": "compare", "panes"} first; every line of a pane's trace with its "pane";
{"type": "doing", "text"} before something is measured, and {"type": "said", "text"} where that could not be measured; {"type":
"table", "rows"} whenever more is known, each replacing the one before. Knows engines and metrics; knows no page.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from specviz.analysis.metrics import BASELINE, table
from specviz.analysis.quality import mean_log_probability
from specviz.engine.engine import BaseEngine
from specviz.engine.events import Event, Finished, Waiting
from specviz.errors import EngineError, is_out_of_memory
from specviz.schema.settings import Request
from specviz.schema.trace import CUT, Run
from specviz.serving.lines import record, trace_lines

_SHARED = "Others’ texts are being written too: what each pane takes alone cannot be measured just now."


def compare(
    engine: BaseEngine,
    requests: Sequence[Request],
    stop: threading.Event,
    *,
    measure_alone: bool = True,
    **more: Any,
) -> Iterator[str]:
    """Serve all requests as one batch, then compare them; yields lines.

    Args:
        engine: serves the batch, and then each request by itself.
        requests: one a pane; they should differ in method, lenience and draft length only.
        stop: ends the run, or the measuring, before the next round.
        measure_alone: serve each request again by itself, and verifier_only unless it is among them: their speeds
            are free of the other panes' load. What was measured before a stop is kept; a run that shared rounds
            with others' is not counted.
        more: further arguments of `engine.stream`.

    Raises:
        RequestError, BusyError, EngineError: as `engine.stream` does.
    """
    runs = yield from side_by_side(engine.stream(requests, stop=stop, **more), len(requests))
    if stop.is_set():
        return
    alone: list[Run | None] = [None] * len(runs)
    baseline = None
    yield from doing("Asking the verifier how likely it finds each text")
    quality = _quality(engine, runs)
    yield record("table", rows=table(runs, alone, baseline, quality))
    for pane, request in _order(requests) if measure_alone else ():
        yield from doing(f"Measuring {'the verifier' if pane is None else f'pane {pane + 1}'} alone")
        # Without inspection, which would cost time.
        run = yield from _measure(engine.stream(replace(request, inspect=0), stop=stop, **more))
        if run is None:
            return
        if request.method == BASELINE:
            baseline = baseline or run
        if pane is not None:
            alone[pane] = run
        yield record("table", rows=table(runs, alone, baseline, quality))


def side_by_side(events: Iterable[Event | Waiting], count: int) -> Generator[str, None, list[Run]]:
    """The lines of `count` runs as they are written, then a first table; returns the runs."""
    runs: dict[int, Run] = {}
    opening = record("compare", panes=count)
    for index, line in trace_lines(events, runs):
        if index is not None:
            yield from [opening] if opening else []
            opening = ""
        yield line if index is None else tagged(index, line)
    written = [runs[index] for index in range(count)]
    nothing = [None] * count
    yield record("table", rows=table(written, nothing, None, nothing))
    return written


def _quality(engine: BaseEngine, runs: Sequence[Run]) -> list[float | None]:
    try:
        # One at a time, so that others' rounds run in between.
        scores = (partial(mean_log_probability, engine.pair, run.prompt_ids, run.token_ids) for run in runs)
        return [engine.call(each) for each in scores]
    except Exception as error:
        if is_out_of_memory(error):
            raise EngineError("Memory ran out while the texts were scored: ask for fewer tokens.") from error
        raise


def _order(requests: Sequence[Request]) -> list[tuple[int | None, Request]]:
    """Panes and requests to be measured alone, the baseline first, so that every later row is complete.

    Pane None is the baseline where no pane is.
    """
    panes = sorted(range(len(requests)), key=lambda pane: requests[pane].method != BASELINE)
    order: list[tuple[int | None, Request]] = [(pane, requests[pane]) for pane in panes]
    if requests[panes[0]].method != BASELINE:
        order.insert(0, (None, replace(requests[0], method=BASELINE, lenience=0.0)))
    return order


def _measure(events: Iterable[Event | Waiting]) -> Generator[str, None, Run | None]:
    """A request served by itself; returns its run, None where it was stopped or shared rounds with others'."""
    for event in events:
        if isinstance(event, Waiting):
            yield ""
        elif event.run.neighbours:
            yield record("said", text=_SHARED)
            return None
        elif isinstance(event, Finished) and event.run.stop_reason not in CUT:
            return event.run
    return None


def tagged(pane: int, line: str) -> str:
    """A line of a trace as a line of its pane."""
    return f'{{"pane":{pane},{line[1:]}'


def doing(text: str) -> Iterator[str]:
    """What is being done until the next table."""
    yield record("doing", text=text)
    yield ""
