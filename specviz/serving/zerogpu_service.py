"""The service on ZeroGPU: each group of requests gets a GPU, a worker and an engine for one call. ZeroGPU manages the queue.

`specviz.serving.zerogpu` starts workers and handles their failures. A worker's events are pickled one by one, so each sends only what
is new.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from specviz.errors import PairError, RequestError, SpecvizError
from specviz.progress import Progress, silent
from specviz.schema.settings import Request
from specviz.schema.trace import Round, Run
from specviz.schema.trace_file import ending
from specviz.serving import zerogpu
from specviz.serving.offer import offered_pairs
from specviz.serving.service import Service
from specviz.serving.statistics import EngineStatistics

if TYPE_CHECKING:
    from specviz.analysis.sweep.results import Results
    from specviz.engine.events import Event
    from specviz.models.pair import ModelPair

log = logging.getLogger(__name__)

_MARGIN = 5
"""Runs end this many seconds before their worker does, so that their texts are not lost."""

_held: dict[str, ModelPair] = {}
"""The pairs, loaded before any worker is forked."""


def _serve(key: str, requests: Sequence[Request], seconds: int) -> Iterator[tuple[int, Any]]:
    """Serve requests in a worker. Yields (index of a run, item): first the run, then each round, then the ending."""
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
    """A service on GPUs that ZeroGPU lends. All offered pairs are in memory from the start."""

    scores = False  # it would cost the visitor GPU time

    def warm_up(self, key: str, progress: Progress = silent) -> Future[None]:
        """Load all pairs, in this thread, for the workers that are forked later. A pair that cannot be loaded is logged and omitted."""
        from specviz.models.loading import load_pair  # slow to import

        for name, spec in offered_pairs().items():
            try:
                _held[name] = load_pair(spec, "cuda", progress=progress)
            except SpecvizError as error:
                self._failed.add(name)
                log.warning("pair not loaded", exc_info=error, extra={"fields": {"pair": name}})
        loaded: Future[None] = Future()
        loaded.set_result(None)
        return loaded

    def has_loaded(self, key: str) -> bool:
        """As `Service.has_loaded`."""
        return key in _held

    def obstacles(self) -> dict[str, str]:
        """As `Service.obstacles`: none, since all pairs are in memory."""
        return {}

    @contextmanager
    def engine(self, key: str, progress: Progress = silent) -> Iterator[Any]:
        """As `Service.engine`. Each stream of the engine gets a GPU. Raises PairError."""
        if key not in _held:
            raise PairError(f"There is no model pair of that name here: known are {', '.join(_held)}.")
        yield SimpleNamespace(stream=partial(self._stream, key))

    def _stream(
        self, key: str, requests: Sequence[Request], *, stop: threading.Event, visitor: str
    ) -> Iterator[Event]:
        """Events as of `SharedEngine.stream`. A stop takes effect with the next round."""
        from specviz.engine.events import Decided, Finished, Started  # slow to import
        from specviz.models.tokenizer import encode_prompt, encoding

        with encoding:
            for request in requests:  # before a GPU is requested
                self.limits.check_tokens(request, len(encode_prompt(_held[key].tokenizer, request)))
        seconds = zerogpu.seconds(requests, offered_pairs()[key].loaded_parameters)
        statistics = self._statistics.setdefault(key, EngineStatistics(key, len(requests), loaded=True))
        runs: dict[int, Run] = {}
        with closing(_on_gpu(key, requests, seconds)) as items:  # type: ignore[type-var]
            for index, item in items:
                if isinstance(item, Run):
                    runs[index] = item
                    yield Started(index, item)
                elif isinstance(item, Round):
                    runs[index].rounds.append(item)
                    statistics.count(len(item.tokens), len(item.proposals), item.examined, item.accepted)
                    yield Decided(index, runs[index], item)
                else:
                    vars(runs[index]).update(item)
                    statistics.finished[runs[index].stop_reason] += 1
                    yield Finished(index, runs[index])
                if stop.is_set() and len(runs) == len(requests):
                    break
        for index, run in runs.items():
            if not run.stop_reason:
                run.stop_reason = "cancelled"
                statistics.finished["cancelled"] += 1
                yield Finished(index, run)

    def sweep(self, *_: Any, **__: Any) -> Iterator[Results]:
        """Raises RequestError: a sweep takes too long."""
        raise RequestError(
            "A sweep takes longer than a GPU is lent here: make one with python -m specviz sweep, or choose a recorded one."
        )
