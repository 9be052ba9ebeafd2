"""One engine for all callers: requests join and leave the batch of one pair between its steps.

An actor: one thread owns scheduler, batches and sequences (`engine_loop`). Callers send it messages (`inbox`), read what it
publishes, and iterate over its events (`streams`). `policy` divides its time; `recovery` keeps a failure to the request that
caused it.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from specviz.engine.engine import BaseEngine
from specviz.engine.scheduler import Scheduler, SequenceGroup
from specviz.engine.sequence import Sequence
from specviz.errors import BusyError, EngineError
from specviz.models.pair import ModelPair
from specviz.models.tokenizer import TokenLabels
from specviz.progress import Progress
from specviz.schema.settings import Request
from specviz.serving.engine_loop import EngineLoop
from specviz.serving.event_queue import EventQueue
from specviz.serving.inbox import STOPPED, Inbox
from specviz.serving.policy import Policy
from specviz.serving.statistics import EngineStatistics
from specviz.serving.streams import SharedStream

T = TypeVar("T")

_encoding = threading.Lock()
"""Held while prompts are encoded: a fast tokenizer must not be set up by two threads at once."""


class SharedEngine(BaseEngine):
    """Serves requests from many threads on one pair, until it is closed or nobody refers to it or its streams any more."""

    def __init__(
        self,
        pair: ModelPair,
        *,
        max_sequences: int = 32,
        queue: int = 64,
        seconds: float = 300,
        statistics: EngineStatistics | None = None,
        policy: Policy | None = None,
    ) -> None:
        """Start the thread.

        Args:
            pair: what to serve on; nobody else may run its models at the same time.
            max_sequences: concurrent sequences.
            queue: sequences that may wait beyond these.
            seconds: from the start of a stream to its deadline; tokens emitted by then are kept.
            statistics: where to count.
            policy: when prompts are read.
        """
        self.pair, self.seconds = pair, seconds
        self.statistics = statistics or EngineStatistics(pair.key, max_sequences)
        self._inbox = Inbox()
        self._labels = TokenLabels(pair.tokenizer)
        scheduler: Scheduler[Sequence] = Scheduler(max_sequences, queue)
        self._loop = EngineLoop(pair, self._inbox, scheduler, policy or Policy(), self.statistics)
        self._thread = threading.Thread(target=self._loop.run, name=f"specviz-engine-{pair.key}", daemon=True)
        self._thread.start()
        weakref.finalize(self, self._inbox.tell, self._loop.close).atexit = False

    @property
    def is_alive(self) -> bool:
        """Whether the thread still serves."""
        return self._thread.is_alive()

    def close(self) -> None:
        """End all runs as cancelled, and the thread; all memory but the models' is free then."""
        self._inbox.tell(self._loop.close)
        self._thread.join()

    def stream(
        self,
        requests: Request | SequenceOf[Request],
        *,
        stop: threading.Event | None = None,
        visitor: str = "",
    ) -> SharedStream:
        """As `BaseEngine.stream`, for one visitor of many.

        `Waiting` comes whenever the queue position changes, and at least once a second while nothing else does.
        A deadline, counted from the first `next`, ends a run with stop_reason "time".

        Raises:
            RequestError: at once, if a request does not fit the pair.
            BusyError: at once or at the first `next`, if the queue is full; later, if the deadline passes before a slot was
                free.
            EngineError: memory ran out, a model failed on this very request, or the engine was closed.
        """
        requests = [requests] if isinstance(requests, Request) else list(requests)
        with _encoding:
            sequences = [Sequence(*each, self.pair, self._labels) for each in enumerate(requests)]
        if self._inbox.is_closed:
            raise EngineError(STOPPED)
        try:
            self._loop.load.check_capacity(len(sequences))
        except BusyError:
            self._inbox.tell(partial(self._loop.count_refused, len(sequences)))
            raise
        events = EventQueue()
        group = SequenceGroup(sequences, visitor, (stop or threading.Event()).is_set, events.put)
        return SharedStream(group, events, self._submit, self._inbox)

    def call(self, function: Callable[[], T]) -> T:
        """Returns `function()`, called by the thread between two steps.

        Raises:
            EngineError: the engine was closed.
        """
        future: Future[T] = Future()
        self._inbox.ask(partial(_answer, future, function), future.set_exception)
        try:
            return future.result()
        finally:
            del future  # an exception's traceback refers to this frame: a reference cycle

    def warm_up(self, progress: Progress) -> None:
        """Make the first text as fast as the next ones, where the device needs time for that: see `Batch.warm_up`."""
        self.call(partial(self._loop.warm_up, progress))

    def _submit(self, group: SequenceGroup[Sequence]) -> float:
        """Queue a group. Returns its deadline on the monotonic clock."""
        now = time.monotonic()
        self._inbox.ask(partial(self._loop.submit, group, now, self.seconds), group.publish)
        return now + self.seconds


def _answer(future: Future[T], function: Callable[[], T]) -> None:
    try:
        future.set_result(function())
    except BaseException as error:
        future.set_exception(error)
        del future  # the error's traceback refers to this frame: a reference cycle
