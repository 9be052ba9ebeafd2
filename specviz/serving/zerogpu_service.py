"""The service where ZeroGPU lends a GPU for the time of one call: each group of runs has a worker, and an engine, of its own.

The queue is ZeroGPU's; what a worker decides comes back event by event, as small as it can be pickled. Knows the service it
stands in for, and engines; what a worker is and how it fails is the business of `specviz.serving.zerogpu`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from specviz.errors import PairError, RequestError
from specviz.progress import Progress
from specviz.schema.settings import Request
from specviz.schema.trace import Round, Run, ending
from specviz.serving import zerogpu
from specviz.serving.offer import offered_pairs
from specviz.serving.service import Service
from specviz.serving.statistics import PairTally

if TYPE_CHECKING:
    from specviz.analysis.sweep.plan import Plan
    from specviz.analysis.sweep.store import Recorded
    from specviz.engine.engine import Event
    from specviz.models.pairs import ModelPair

_MARGIN = 5
"""Seconds before a worker's time is over at which its runs end themselves: then their texts are kept."""

_held: dict[str, ModelPair] = {}
"""The pairs, loaded before any worker is forked."""


def _serve(key: str, requests: Sequence[Request], seconds: int) -> Iterator[tuple[int, Any]]:
    """In a worker: each run's index with the run as it begins, its rounds, and at last how it ended."""
    from specviz.engine.engine import Decided, Finished, Started
    from specviz.serving.shared_engine import SharedEngine

    engine = SharedEngine(_held[key], max_rows=len(requests), seconds=seconds - _MARGIN)
    try:
        begun = set()
        for event in engine.stream(requests):
            if isinstance(event, Started | Decided | Finished) and event.index not in begun:
                begun.add(event.index)
                yield event.index, event.run
            if isinstance(event, Decided):
                yield event.index, event.round
            elif isinstance(event, Finished):
                yield event.index, ending(event.run)
    finally:
        engine.close()


def _duration(key: str, requests: Sequence[Request], seconds: int) -> int:
    return seconds


_on_gpu = zerogpu.on_gpu(_serve, _duration)


class ZeroGpuService(Service):
    """Serves on GPUs that are lent; every pair that is offered is in memory from the start."""

    def warm_up(self, key: str, progress: Progress | None = None) -> threading.Thread:
        """Load all pairs, here and now: workers have what this thread has loaded before the page is served."""
        from specviz.models.pairs import load_pair

        offered = offered_pairs()
        _held.update(zerogpu.load(offered, lambda each: load_pair(offered[each], "cuda", progress=progress)))
        return threading.current_thread()

    def events(
        self,
        key: str,
        requests: Sequence[Request],
        stop: threading.Event,
        progress: Progress | None = None,
        *,
        visitor: str = "",
    ) -> Iterator[Event]:
        """As `Service.events`; a stop is heard with the next round."""
        with self._visit(visitor, requests):
            yield from self._stream(key, requests, stop)

    def compare_lines(
        self,
        key: str,
        requests: Sequence[Request],
        stop: threading.Event,
        progress: Progress | None = None,
        *,
        measure_alone: bool = True,
        visitor: str = "",
    ) -> Iterator[str]:
        """As `Service.compare_lines`, without measuring anything alone: a visitor's time on the GPU is short."""
        from specviz.analysis.comparison import side_by_side

        self.limits.check_panes(requests)
        with self._visit(visitor, requests):
            yield from side_by_side(self._stream(key, requests, stop), len(requests))

    def sweep(self, key: str, plan: Plan, *_: Any, **__: Any) -> Iterator[Recorded]:
        """Raises RequestError: there is no time for one."""
        raise RequestError(
            "A sweep takes longer than a GPU is lent here: make one with python -m specviz sweep, or choose a recorded one."
        )

    def _stream(self, key: str, requests: Sequence[Request], stop: threading.Event) -> Iterator[Event]:
        from specviz.engine.engine import Decided, Finished, Started

        if key not in _held:
            raise PairError(f"There is no model pair of that name here: known are {', '.join(_held)}.")
        seconds = zerogpu.seconds(requests, offered_pairs()[key].loaded_parameters)
        tally = self._tallies.setdefault(key, PairTally(key, len(requests), loaded=True))
        runs: dict[int, Run] = {}
        told = _on_gpu(key, requests, seconds)
        try:
            for index, news in told:
                if isinstance(news, Run):
                    runs[index] = news
                    yield Started(index, news)
                elif isinstance(news, Round):
                    runs[index].rounds.append(news)
                    tally.count(news)
                    yield Decided(index, runs[index], news)
                else:
                    vars(runs[index]).update(news)
                    tally.finished[runs[index].stop_reason] += 1
                    yield Finished(index, runs[index])
                if stop.is_set() and len(runs) == len(requests):
                    break
        finally:
            told.close()  # type: ignore[attr-defined]
        for index, run in runs.items():
            if not run.stop_reason:
                run.stop_reason = "cancelled"
                tally.finished["cancelled"] += 1
                yield Finished(index, run)
