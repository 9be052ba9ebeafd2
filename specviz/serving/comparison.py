"""Compares requests: all in one batch, then each alone. Yields lines of JSON.

The lines are those of `specviz.serving.lines`; lines of a trace also have their "pane". Further lines: {"type": "compare", "panes"}
comes first; {"type": "doing", "text"} precedes a measurement, {"type": "said", "text"} reports that it failed; {"type": "table", "rows"}
replaces the previous table.
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
    """Serve all requests as one batch, then compare them.

    Args:
        engine: serves the batch, then each request alone.
        requests: one per pane.
        stop: ends the run, or the measurements, before the next round. Finished measurements are kept.
        measure_alone: measure each request's speed alone, and that of `verifier_only` even if it is no pane. A
            measurement that shared its rounds with other visitors' sequences is discarded.
        more: further arguments of `engine.stream`.

    Yields:
        Lines.

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
        # inspection would slow the measurement down
        run = yield from _measure(engine.stream(replace(request, inspect=0), stop=stop, **more))
        if run is None:
            return
        if request.method == BASELINE:
            baseline = baseline or run
        if pane is not None:
            alone[pane] = run
        yield record("table", rows=table(runs, alone, baseline, quality))


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
    nothing = [None] * count
    yield record("table", rows=table(written, nothing, None, nothing))
    return written


def _quality(engine: BaseEngine, runs: Sequence[Run]) -> list[float | None]:
    try:
        # one call each, so that steps of other sequences can run in between
        scores = (partial(mean_log_probability, engine.pair, run.prompt_ids, run.token_ids) for run in runs)
        return [engine.call(each) for each in scores]
    except Exception as error:
        if is_out_of_memory(error):
            raise EngineError("Memory ran out while the texts were scored: ask for fewer tokens.") from error
        raise


def _order(requests: Sequence[Request]) -> list[tuple[int | None, Request]]:
    """(pane, request) pairs to measure alone, the baseline first. The baseline's pane is None if it is not among the panes."""
    panes = sorted(range(len(requests)), key=lambda pane: requests[pane].method != BASELINE)
    order: list[tuple[int | None, Request]] = [(pane, requests[pane]) for pane in panes]
    if requests[panes[0]].method != BASELINE:
        order.insert(0, (None, replace(requests[0], method=BASELINE, lenience=0.0)))
    return order


def _measure(events: Iterable[Event | Waiting]) -> Generator[str, None, Run | None]:
    """The run of a request served alone; None if it was stopped or shared its rounds."""
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
    """Add the pane to a line of a trace."""
    return f'{{"pane":{pane},{line[1:]}'


def doing(text: str) -> Iterator[str]:
    """Lines that say what is being measured until the next table."""
    yield record("doing", text=text)
    yield ""
