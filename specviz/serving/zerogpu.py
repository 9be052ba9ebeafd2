"""The service on ZeroGPU, which lends a Space a GPU for the duration of one call and manages the queue.

Each group of requests gets a GPU, a worker and an engine. A worker is a forked process; only workers see a GPU. A worker can use
models that the thread that imported `spaces` loaded before the page was launched. The items that a worker yields are pickled one
by one, so each item has only what is new.
"""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from specviz.environment import GPU_RUNNER, GRAPHS
from specviz.errors import BusyError, EngineError, PairError, RequestError, SpecvizError
from specviz.progress import Progress, silent
from specviz.schema.settings import Request
from specviz.schema.trace import Round, Run
from specviz.schema.trace_file import ending
from specviz.serving.limits import Limits
from specviz.serving.logs import MAX_TEXT
from specviz.serving.offer import offered_pairs
from specviz.serving.service import Service
from specviz.serving.statistics import EngineStatistics

if TYPE_CHECKING:
    from specviz.analysis.sweep.results import Results
    from specviz.engine.events import Event
    from specviz.models.availability import PairStatus
    from specviz.models.pair import ModelPair

log = logging.getLogger(__name__)

LEAST, MOST = 15, 80
"""Minimum and maximum GPU seconds that a run requests. A second on current GPUs costs 1.5 s of quota: 80 s cost 120 s, the last
documented daily quota of a visitor without an account."""

# Estimates, not measured on ZeroGPU. Longer requests have lower priority in the queue, but unused seconds are not charged. A run that
# takes longer than requested is ended.
_START = 8.0  # seconds that a new worker needs: fork, CUDA, first kernels
_MOVED = 2e9  # bytes of weights per second, from disk to the GPU
_READ = 5e11  # bytes of weights per second, in a pass
_ROUND = 0.05  # seconds per token: draft, verification, decision
_MORE = 0.01  # further seconds per token, for each text of the batch

_MARGIN = 5
"""Runs end this many seconds before their worker does, so that their texts are not lost."""

_held: dict[str, ModelPair] = {}
"""Pairs by key. They are loaded before any worker is forked."""


def start() -> None:
    """Prepare this process for ZeroGPU. Call first, in the main thread, before torch is imported."""
    # transformers would load in several threads, but outside a worker only the thread that imports `spaces` sees a (virtual) GPU.
    os.environ["HF_DEACTIVATE_ASYNC_LOAD"] = "1"
    # A worker lives for one call, too short for captured passes and compiled kernels to save the time that they cost.
    os.environ[GRAPHS.name] = "0"
    os.environ[GPU_RUNNER.name] = "torch"
    import spaces  # noqa: F401  # an optional package


class ZeroGpuService(Service):
    """A service on GPUs that ZeroGPU lends. All offered pairs are in memory from the start."""

    scores = False  # it would cost the visitor GPU time

    def __init__(self, limits: Limits) -> None:
        """Serve within `limits`. Call before the page is launched, which is when ZeroGPU looks for functions that need a GPU."""
        import spaces  # an optional package

        super().__init__(limits)
        self._on_gpu = spaces.GPU(_serve, duration=lambda key, requests, seconds: seconds)

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

    def states(self) -> list[PairStatus]:
        """As `Service.states`, but empty: no pair can be checked, since only a worker sees the GPU."""
        return []

    @contextmanager
    def engine(self, key: str, progress: Progress = silent) -> Iterator[Any]:
        """As `Service.engine`. Each stream of the engine gets a GPU. Raises PairError."""
        if key not in _held:
            raise PairError(f"There is no model pair of that name here: known are {', '.join(_held)}.")
        yield SimpleNamespace(stream=partial(self._stream, key))

    def _stream(
        self, key: str, requests: Sequence[Request], *, stop: threading.Event, visitor: str
    ) -> Iterator[Event]:
        """Events as from `SharedEngine.stream`. Once all runs have started, a stop takes effect after the next item."""
        from specviz.engine.events import Decided, Finished, Started  # slow to import
        from specviz.models.tokenizer import encode_prompt, encoding

        with encoding:
            for request in requests:  # before a GPU is requested
                self.limits.check_tokens(request, len(encode_prompt(_held[key].tokenizer, request)))
        statistics = self._statistics.setdefault(key, EngineStatistics(key, len(requests), loaded=True))
        runs: dict[int, Run] = {}
        with closing(self._lent(key, requests)) as items:
            for index, item in items:
                if isinstance(item, Run):
                    runs[index] = item
                    yield Started(index, item)
                elif isinstance(item, Round):
                    runs[index].rounds.append(item)
                    statistics.count(item)
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

    def _lent(self, key: str, requests: Sequence[Request]) -> Generator[tuple[int, Any], None, None]:
        """The items of a worker, in the visitor's GPU time. Closing the iterator ends the worker after its next item.

        Raises:
            BusyError: no GPU is free, or the visitor's quota is used up.
            EngineError: the worker failed or was ended, for example because its time was over.
            SpecvizError: an error of ours in the worker.
        """
        failure = None
        with closing(
            self._on_gpu(key, requests, seconds(requests, offered_pairs()[key].loaded_parameters))
        ) as items:
            try:
                for item in items:
                    if isinstance(item, SpecvizError):
                        failure = item  # raised after the worker has ended, so that it can be reused
                    else:
                        yield item
            except Exception as error:
                failure = _explained(error)
        if failure:
            raise failure

    def sweep(self, *_: Any, **__: Any) -> Iterator[Results]:
        """Raises RequestError: a sweep takes too long."""
        raise RequestError(
            "A sweep takes longer than a GPU is lent here: make one with python -m specviz sweep, or choose a recorded one."
        )


def _serve(key: str, requests: Sequence[Request], seconds: int) -> Iterator[tuple[int, Any] | SpecvizError]:
    """Serve requests in a worker. Yields (index of a run, item): first the run, then each round, then the ending.

    An error of ours is an item too, because a worker passes on only the type of an exception.
    """
    from specviz.engine.events import Decided, Finished, Started  # slow to import, as is the engine
    from specviz.serving.shared_engine import SharedEngine

    engine = SharedEngine(_held[key], max_sequences=len(requests), seconds=seconds - _MARGIN)
    try:
        begun = set()
        for event in engine.stream(requests):
            if isinstance(event, Started | Decided | Finished) and event.index not in begun:
                begun.add(event.index)
                # As it began: the run itself goes on in the engine's thread while this item is sent.
                yield event.index, replace(event.run, rounds=[], stop_reason="")
            if isinstance(event, Decided):
                yield event.index, event.round
            elif isinstance(event, Finished):
                yield event.index, ending(event.run)
    except SpecvizError as error:
        yield error
    finally:
        engine.close()


def seconds(requests: Sequence[Request], parameters: int) -> int:
    """GPU seconds to request for writing all texts as one batch, from `LEAST` to `MOST`. Prefill takes almost no time.

    Args:
        requests: the texts.
        parameters: number of parameters of both models together.
    """
    weights = parameters * 2  # bytes, in bfloat16
    token = _ROUND + _MORE * len(requests) + weights / _READ
    tokens = max((request.max_new_tokens for request in requests), default=0)
    estimate = _START + weights / _MOVED + token * tokens
    return math.ceil(min(max(estimate, LEAST), MOST))


def _explained(error: Exception) -> SpecvizError:
    """Our error for a failure of ZeroGPU. Visitors see ZeroGPU's own messages about queues and quotas."""
    title = str(getattr(error, "title", ""))[:MAX_TEXT]
    log.warning("no result from ZeroGPU", exc_info=error, extra={"fields": {"title": title}})
    if title == "ZeroGPU worker error":
        return EngineError(
            "The run on the GPU broke off, or took longer than the time it had: ask for fewer tokens, or try again."
        )
    if title.startswith("ZeroGPU"):
        return BusyError(str(getattr(error, "message", error)))
    return EngineError("No GPU could be had just now: try again later.")
