"""One engine for all callers: requests join and leave the batch of one pair between steps.

An actor: one thread owns scheduler, batches and sequences (`engine_loop`). Callers send it messages (`inbox`) and iterate over
its events (`streams`).
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from specviz.engine.engine import BaseEngine
from specviz.engine.events import Event, Waiting
from specviz.engine.scheduler import Scheduler, SequenceGroup
from specviz.engine.sequence import CheckTokens, Sequence
from specviz.models.pair import ModelPair
from specviz.serving.engine_loop import EngineLoop
from specviz.serving.inbox import Inbox, answer
from specviz.serving.statistics import EngineStatistics
from specviz.serving.streams import EventQueue, SharedStream

T = TypeVar("T")


class SharedEngine(BaseEngine[Event | Waiting]):
    """Serves requests of many threads on one pair. Ends when closed or garbage-collected; its streams keep it alive."""

    def __init__(
        self,
        pair: ModelPair,
        *,
        max_sequences: int = 32,
        queue: int = 64,
        seconds: float = 300,
        statistics: EngineStatistics | None = None,
        check_tokens: CheckTokens | None = None,
    ) -> None:
        """Start the thread.

        Args:
            pair: a pair whose models nobody else runs at the same time.
            max_sequences: number of slots.
            queue: number of sequences that may wait for a slot.
            seconds: seconds from the start of a stream to its deadline, at which its texts are cut off.
            statistics: counts runs.
            check_tokens: called for every request before its prompt is read.
        """
        super().__init__(pair, check_tokens=check_tokens)
        self.seconds = seconds
        self.statistics = statistics or EngineStatistics(pair.key, max_sequences)
        self._inbox = Inbox()
        scheduler: Scheduler[Sequence] = Scheduler(max_sequences, queue)
        self._loop = EngineLoop(pair, self._inbox, scheduler, self.statistics)
        self._thread = threading.Thread(target=self._loop.run, name=f"specviz-engine-{pair.key}", daemon=True)
        self._thread.start()
        weakref.finalize(self, self._inbox.send, self._loop.close).atexit = False

    @property
    def is_alive(self) -> bool:
        """Whether the thread still serves."""
        return self._thread.is_alive()

    def close(self) -> None:
        """End all runs and the thread. Afterwards only the models take memory."""
        self._inbox.send(self._loop.close)
        self._thread.join()

    def _serve(self, group: SequenceGroup[Sequence]) -> SharedStream:
        events = EventQueue()
        group.publish = events.put
        return SharedStream(group, events, self._submit, self._inbox)

    def call(self, function: Callable[[], T]) -> T:
        """The result of `function`, called by the engine's thread between two steps.

        Raises:
            EngineError: the engine was closed. Errors of `function` are raised too.
        """
        future: Future[T] = Future()
        self._inbox.send(partial(answer, future, function), future.set_exception)
        try:
            return future.result()
        finally:
            del future  # an exception's traceback refers to this frame: a reference cycle

    def warm_up(self) -> None:
        """Measure the pair's pass times, which on a GPU also captures the passes of one short text. Call before any request."""
        self.call(lambda: self.pair.pass_times)

    def _submit(self, group: SequenceGroup[Sequence]) -> None:
        submit = partial(self._loop.submit, group, time.monotonic(), self.seconds)
        self._inbox.send(submit, group.publish)
