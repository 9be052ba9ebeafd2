"""One loaded pair, shared: loads it when first asked for, and serves requests on it as lines of a trace.

The page's only door to models and engine. Knows no page; imports torch only when there is work.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from specviz.errors import SpecvizError
from specviz.progress import Progress
from specviz.request import Request
from specviz.trace import end_line, header_line, round_line

if TYPE_CHECKING:
    from specviz.engine import Engine
    from specviz.sweep.plan import Plan
    from specviz.sweep.store import Recorded

_POLL_SECONDS = 0.2


class Service:
    """Holds at most one pair in memory; another one takes its place when asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._key = ""
        self._engine: Engine | None = None
        self._loading: tuple[float, str] = (0.0, "Waiting for the models")

    def warm_up(self, key: str, progress: Progress | None = None) -> threading.Thread:
        """Load a pair in the background. A failure is left for the first request to hear of."""

        def load() -> None:
            try:
                self.engine(key, progress)
            except SpecvizError as error:
                if progress:
                    progress(0.0, str(error))

        thread = threading.Thread(target=load, name="specviz-warm-up", daemon=True)
        thread.start()
        return thread

    def engine(self, key: str, progress: Progress | None = None) -> Engine:
        """The engine of a pair, loaded if it is not; while another thread loads, its progress is passed on.

        Raises:
            PairError: the pair cannot be had. The next call tries afresh.
        """
        while not self._lock.acquire(timeout=_POLL_SECONDS):
            if progress:
                progress(*self._loading)
        try:
            if self._engine is None or self._key != key:
                self._engine = self._load(key, progress)
                self._key = key
            return self._engine
        finally:
            self._lock.release()

    def _load(self, key: str, progress: Progress | None) -> Engine:
        def report(fraction: float, text: str) -> None:
            self._loading = (fraction, text)
            if progress:
                progress(fraction, text)

        report(0.0, "Loading the models")
        self._engine = None  # the old pair's memory is free before the new pair's is taken
        from specviz.engine import Engine
        from specviz.pairs import load_pair

        return Engine(load_pair(key, progress=report))

    def lines(
        self, key: str, request: Request, stop: threading.Event, progress: Progress | None = None
    ) -> Iterator[str]:
        """Serve one request; yields its trace line by line, as rounds are decided.

        Raises:
            PairError, RequestError, EngineError: as loading and generating do.
        """
        engine = self.engine(key, progress)
        from specviz.engine import Decided, Finished

        begun = False
        for event in engine.stream(request, stop=stop):
            if not begun:  # also where a stop came before the start
                yield header_line(event.run)
                begun = True
            if isinstance(event, Decided):
                yield round_line(event.round)
            elif isinstance(event, Finished):
                yield end_line(event.run)

    def compare_lines(
        self,
        key: str,
        requests: Sequence[Request],
        stop: threading.Event,
        progress: Progress | None = None,
        *,
        measure_alone: bool = True,
    ) -> Iterator[str]:
        """Serve several requests as one batch and say how they compare; yields the lines of `specviz.comparison`.

        Raises:
            PairError, RequestError, EngineError: as loading and generating do.
        """
        engine = self.engine(key, progress)
        from specviz.comparison import compare

        yield from compare(engine, requests, stop, measure_alone=measure_alone)

    def sweep(
        self, key: str, plan: Plan, stop: threading.Event, progress: Progress | None = None
    ) -> Iterator[Recorded]:
        """Go through a small sweep; yields what is known after every item at every temperature.

        Raises:
            PairError, RequestError, EngineError: as loading and generating do.
        """
        engine = self.engine(key, progress)
        from specviz.sweep.items import load_items
        from specviz.sweep.job import Job
        from specviz.sweep.sample import Sample
        from specviz.sweep.store import Recorded

        job = Job(plan, engine.pair, load_items(plan.prompts, plan.limit))
        samples: list[Sample] = []
        for count, unit in enumerate(job.units, 1):
            found = job.samples(unit, stop)
            if found is None:
                return
            samples += found
            if progress:
                progress(count / len(job.units), f"Item {unit.item + 1} of {len(job.items.items)}")
            yield Recorded(job.header.results(samples), job.items.items, list(samples))
