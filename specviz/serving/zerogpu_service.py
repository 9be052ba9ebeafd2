"""The service where ZeroGPU lends a GPU for the time of one call: each group of runs gets a worker and an engine.

The queue is ZeroGPU's; a worker's events come back one by one, as small as they can be pickled. Knows the service it
stands in for, and engines; does not know what a worker is nor how it fails (`specviz.serving.zerogpu` does).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from specviz.errors import PairError, RequestError
from specviz.progress import Progress
from specviz.schema.settings import Request
from specviz.schema.trace import Round, Run
from specviz.schema.trace_file import ending
from specviz.serving import zerogpu
from specviz.serving.offer import offered_pairs
from specviz.serving.service import Service
from specviz.serving.statistics import EngineStatistics

if TYPE_CHECKING:
    from specviz.analysis.sweep.folder import Recorded
    from specviz.analysis.sweep.grid import SweepGrid
    from specviz.engine.events import Event
    from specviz.models.pair import ModelPair

_MARGIN = 5
"""Seconds before a worker's time is over at which its runs end themselves: then their texts are kept."""

_held: dict[str, ModelPair] = {}
"""The pairs, loaded before any worker is forked."""


def _serve(key: str, requests: Sequence[Request], seconds: int) -> Iterator[tuple[int, Any]]:
    """In a worker: each run's index with the run as it begins, then its rounds, then how it ended."""
    from specviz.engine.events import Decided, Finished, Started  # slow to import, as is the engine
    from specviz.serving.shared_engine import SharedEngine

    engine = SharedEngine(_held[key], max_sequences=len(requests), seconds=seconds - _MARGIN)
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


_on_gpu = zerogpu.on_gpu(_serve, lambda key, requests, seconds: seconds)


class ZeroGpuService(Service):
    """Serves on GPUs that are lent; every pair that is offered is in memory from the start."""

    def warm_up(self, key: str, progress: Progress | None = None) -> threading.Thread:
        """Load all pairs, here and now: workers have what this thread has loaded before the page is served."""
        from specviz.models.loading import load_pair  # slow to import

        offered = offered_pairs()
        _held.update(zerogpu.load(offered, lambda each: load_pair(offered[each], "cuda", progress=progress)))
        return threading.current_thread()

    def has_loaded(self, key: str) -> bool:
        """As `Service.has_loaded`."""
        return key in _held

    def obstacles(self) -> dict[str, str]:
        """As `Service.obstacles`: all are in memory, and nothing can be asked of a GPU here."""
        return {}

    def events(
        self,
        key: str,
        requests: Sequence[Request],
        stop: threading.Event,
        *_: Any,
        visitor: str = "",
        **__: Any,
    ) -> Iterator[Event]:
        """As `Service.events`; a stop takes effect with the next round."""
        with self._visit(visitor, requests):
            yield from self._lent(key, requests, stop)

    def _lent(self, key: str, requests: Sequence[Request], stop: threading.Event) -> Iterator[Event]:
        from specviz.engine.events import Decided, Finished, Started  # slow to import

        if key not in _held:
            raise PairError(f"There is no model pair of that name here: known are {', '.join(_held)}.")
        seconds = zerogpu.seconds(requests, offered_pairs()[key].loaded_parameters)
        statistics = self._statistics.setdefault(key, EngineStatistics(key, len(requests), loaded=True))
        runs: dict[int, Run] = {}
        items = _on_gpu(key, requests, seconds)
        try:
            for index, item in items:
                if isinstance(item, Run):
                    runs[index] = item
                    yield Started(index, item)
                elif isinstance(item, Round):
                    runs[index].rounds.append(item)
                    statistics.count(len(item.tokens), item.examined, item.accepted)
                    yield Decided(index, runs[index], item)
                else:
                    vars(runs[index]).update(item)
                    statistics.finished[runs[index].stop_reason] += 1
                    yield Finished(index, runs[index])
                if stop.is_set() and len(runs) == len(requests):
                    break
        finally:
            items.close()  # type: ignore[attr-defined]
        for index, run in runs.items():
            if not run.stop_reason:
                run.stop_reason = "cancelled"
                statistics.finished["cancelled"] += 1
                yield Finished(index, run)

    def compare_lines(
        self,
        key: str,
        requests: Sequence[Request],
        stop: threading.Event,
        *_: Any,
        visitor: str = "",
        **__: Any,
    ) -> Iterator[str]:
        """As `Service.compare_lines`, without measuring anything alone: a visitor's time on the GPU is short."""
        from specviz.serving.comparison import side_by_side  # slow to import

        self.limits.check_panes(requests)
        yield from side_by_side(self.events(key, requests, stop, visitor=visitor), len(requests))

    def sweep(self, key: str, plan: SweepGrid, *_: Any, **__: Any) -> Iterator[Recorded]:
        """Raises RequestError: there is no time for one."""
        raise RequestError(
            "A sweep takes longer than a GPU is lent here: make one with python -m specviz sweep, or choose a recorded one."
        )
