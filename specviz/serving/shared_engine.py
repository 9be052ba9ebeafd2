"""One engine for all callers: a thread that serves one pair, letting requests join and leave between steps.

The scheduler decides what is admitted and what leaves; the thread carries that out: prefills, steps and publishes events,
so that a request that fails takes no other with it. Knows batches, visitors (as opaque names) and clocks; knows no page,
and decides nothing about a text: that is the same alone or in company (law 3).
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator
from collections.abc import Sequence as SequenceOf
from concurrent.futures import Future
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TypeVar

from specviz.engine.batch import Batch
from specviz.engine.draft_length import DraftingStatistics
from specviz.engine.engine import BaseEngine, out_of_memory, step
from specviz.engine.events import Decided, Event, Finished, Started, Stream, Waiting
from specviz.engine.record import Outcome
from specviz.engine.scheduler import Scheduler, SequenceGroup
from specviz.engine.sequence import Sequence
from specviz.errors import BROKEN, BusyError, EngineError, SpecvizError, is_out_of_memory
from specviz.models.pair import ModelPair
from specviz.models.tokenizer import TokenLabels
from specviz.progress import Progress
from specviz.runtime.memory import give_back_memory
from specviz.runtime.prefix_cache import PrefixCache
from specviz.schema.settings import Request
from specviz.serving.event_queue import EventQueue
from specviz.serving.statistics import EngineStatistics

log = logging.getLogger(__name__)

T = TypeVar("T")

CHUNK = 128
"""Prompt tokens of a sequence that are read between two steps of the others."""
_READING_SHARE, _READING_SECONDS = 3.0, 1.0
"""Prompts may be read for so many steps between two of them, but for no more than so many seconds unless one step takes longer."""
_LONG_STEP = 0.25
"""Seconds of a step that texts which join do not wait for, where passes are fused: a first step of their own, of one token each, holds up all
others for 25 ms.
"""
_IDLE = 2.0
"""Seconds without work after which free memory is given back to the system."""
_BEAT = 1.0
"""Seconds of silence after which `Waiting` is repeated, so that a caller can notice that its client has gone."""
_GRACE = 60.0
"""Seconds past its deadline after which a stream gives up on the engine's thread."""
_STOPPED = "The server has ended this run because it is being stopped."


_encoding = threading.Lock()
"""Held while prompts are encoded: a fast tokenizer must not be set up by two threads at once."""


def reading_seconds(step_seconds: float) -> float:
    """How long prompts are read between two steps, as long as any wait, where the last step took `step_seconds`.

    Longer than a step: whoever waits begins the sooner, and steps that more texts share cost each of them less.
    """
    return max(step_seconds, min(_READING_SHARE * step_seconds, _READING_SECONDS))


class SharedEngine(BaseEngine):
    """Serves requests from many threads on one pair."""

    def __init__(
        self,
        pair: ModelPair,
        *,
        max_sequences: int = 32,
        queue: int = 64,
        seconds: float = 300,
        statistics: EngineStatistics | None = None,
    ) -> None:
        """Start the thread.

        Args:
            pair: what to serve on; nobody else may run its models at the same time.
            max_sequences: sequences that decode at once.
            queue: sequences that may wait beyond these.
            seconds: from the start of a stream to the end of its texts; what there is by then is kept.
            statistics: where to count.
        """
        self.pair = pair
        self.max_sequences, self.queue, self.seconds = max_sequences, queue, seconds
        self.statistics = statistics or EngineStatistics(pair.key, max_sequences)
        self._labels = TokenLabels(pair.tokenizer)
        self._drafting_statistics = DraftingStatistics()
        self._prefix_caches = (PrefixCache(), PrefixCache())
        self._batch = Batch(pair, self._drafting_statistics, self._prefix_caches)
        self._newcomers = Batch(pair, self._drafting_statistics, self._prefix_caches, apart=True)
        self._prefill: _Prefill | None = None
        self._step_seconds = 0.0
        self._scheduler: Scheduler[Sequence] = Scheduler(max_sequences, queue)
        self._queues: dict[SequenceGroup[Sequence], EventQueue] = {}
        self._lock = threading.RLock()
        """Held wherever the scheduler is read or changed, never while a model runs."""
        self._inbox: SimpleQueue[_Call | None] = SimpleQueue()
        """What wakes the thread. A `SimpleQueue`, which finalizers may put into."""
        self._calls: deque[_Call] = deque()
        self._closing, self._used = False, False
        self._thread = threading.Thread(target=self._run, name=f"specviz-engine-{pair.key}", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the thread still serves."""
        return self._thread.is_alive()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being served and nothing waits."""
        return not self._scheduler.groups and self._inbox.empty()

    def close(self) -> None:
        """End all runs as cancelled, and the thread; all memory but the models' is free then."""
        with self._lock:
            self._closing = True
        self.wake()
        self._thread.join()

    # ---- for callers, from any thread ------------------------------------------------------------------------

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
            BusyError: at once or at the first `next`, if too many wait; later, if the deadline passes before there was a
                free slot.
            EngineError: memory ran out, a model failed on this very request, or the engine was closed.
        """
        requests = [requests] if isinstance(requests, Request) else list(requests)
        with _encoding:
            sequences = [Sequence(*each, self.pair, self._labels) for each in enumerate(requests)]
        group = SequenceGroup(sequences, visitor, (stop or threading.Event()).is_set)
        with self._lock:
            self._check_open(len(sequences))
        return SharedStream(self, group)

    def submit(self, group: SequenceGroup[Sequence], events: EventQueue) -> None:
        """Queue a group, whose events go to `events`. For `SharedStream`.

        Raises:
            BusyError, EngineError: as `stream`.
        """
        with self._lock:
            self._check_open(len(group.sequences))
            self._scheduler.submit(group, time.monotonic(), self.seconds)
            self._queues[group] = events
            self._count()
        self.wake()

    def wake(self) -> None:
        """Let the thread look for what has changed. Takes no lock."""
        self._inbox.put(None)

    def call(self, function: Callable[[], T]) -> T:
        """Returns `function()`, called by the thread between two steps.

        Raises:
            EngineError: the engine was closed.
        """
        call = _Call(function)
        with self._lock:
            if self._closing:
                raise EngineError(_STOPPED)
            self._inbox.put(call)
        try:
            result: T = call.result.result()  # type: ignore[assignment]
            return result
        finally:
            del call  # an exception's traceback has this frame: a cycle would keep both

    def warm_up(self, progress: Progress) -> None:
        """Make the first text as fast as the next ones, where the device needs time for that: see `Batch.warm_up`."""

        def capture() -> None:
            for count, _ in enumerate(self._batch.warm_up(), 1):
                progress(1.0, f"Getting the GPU ready: forward pass {count}")

        self.call(capture)

    def _check_open(self, count: int) -> None:
        """Whether `count` more sequences may come; counts a refusal."""
        if self._closing:
            raise EngineError(_STOPPED)
        try:
            self._scheduler.check_capacity(count)
        except BusyError:
            self.statistics.refused += count
            raise

    # ---- the thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._await_work():
                begin = time.monotonic()
                try:
                    self._turn()
                except Exception as error:
                    log.error("the engine starts anew", exc_info=error)
                    self._fail_all(BROKEN)
                self.statistics.busy_seconds += time.monotonic() - begin
        finally:
            with self._lock:
                self._closing = True
                self._fail_all(_STOPPED)
            self._receive()
            for call in self._calls:
                call.result.set_exception(EngineError(_STOPPED))

    def _await_work(self) -> bool:
        """Block until there is something to do; False when the engine is being closed."""
        while not (self._closing or self._scheduler.groups or self._calls):
            try:
                self._receive(block=True)
                self._used = True
            except Empty:
                give_back_memory()
                self._used = False
        return not self._closing

    def _receive(self, block: bool = False) -> None:
        """Take what the inbox holds. Blocks for the first of it, if asked to, and raises Empty where memory should be given back."""
        if block and (call := self._inbox.get(timeout=_IDLE if self._used else None)):
            self._calls.append(call)
        while not self._inbox.empty():
            if call := self._inbox.get():
                self._calls.append(call)

    def _turn(self) -> None:
        """Functions to call between steps, ends, prefill of those who join for up to `reading_seconds`, their first step, a step."""
        self._receive()
        while self._calls:
            self._calls.popleft().run()
        self._leave()
        begin = time.monotonic()
        while self._join() and time.monotonic() - begin < reading_seconds(self._step_seconds):
            pass
        self._begin_newcomers()
        begin = time.monotonic()
        self._step()
        self._step_seconds = time.monotonic() - begin
        self._count()

    def _join(self) -> bool:
        """Admissions and a chunk of prefill; False where there is nothing to prefill."""
        self._admit()
        if self._prefill is None:
            return False
        self._advance_prefill()
        return True

    def _count(self) -> None:
        self.statistics.running, self.statistics.waiting = self._scheduler.running, self._scheduler.waiting

    def _leave(self) -> None:
        """End sequences that were aborted, and those past their deadline."""
        now = time.monotonic()
        with self._lock:
            for sequence, reason in self._scheduler.leaving(now):
                sequence.cut(reason)
                self._finish(sequence)
            for group, error in self._scheduler.unserved(now):
                self._fail(group, error)

    def _admit(self) -> None:
        """Begin to prefill what the scheduler admits, and publish queue positions."""
        with self._lock:
            admitted = self._scheduler.admit(self._batch.room_for)
            if admitted:
                arrival = self._group(admitted[0]).arrival
                self.statistics.waited_seconds += len(admitted) * (time.monotonic() - arrival)
                self._prefill = self._new_prefill(admitted)
            for group, position in self._scheduler.queue_positions():
                self._queues[group].put(Waiting(group.waiting[0].index, position))
            self._count()

    def _new_prefill(self, sequences: list[Sequence], cached: bool = True) -> _Prefill:
        caches = self._prefix_caches if cached else None
        batch = Batch(self.pair, self._drafting_statistics, caches, apart=True)
        return _Prefill(sequences, batch, batch.read(sequences, CHUNK if self._batch.sequences else None))

    def _advance_prefill(self) -> None:
        """Read one chunk of the joining prompts; the sequences join the batch when all is read, or the newcomers where steps are long."""
        if (prefill := self._prefill) is None:
            return
        try:
            if next(prefill.passes, prefill) is None:
                return
            is_long = self._batch.is_invariant and self._step_seconds > _LONG_STEP
            (self._newcomers if self._batch.sequences and is_long else self._batch).take(prefill.batch)
        except Exception as error:
            self._prefill, longest = None, prefill.batch.longest
            prefill.batch.clear()
            if is_out_of_memory(error) and self._free_memory():
                # Without the prefix caches: what a second failure would find in them, this try would have put there.
                self._prefill = self._new_prefill(prefill.sequences, cached=False)
            else:
                self._fail(
                    self._group(prefill.sequences[0]),
                    self._explained(error, len(prefill.sequences), longest),
                )
            return
        self._prefill = None
        with self._lock:
            self._scheduler.prefilled()
        for sequence in prefill.sequences:
            self._publish(sequence, Started(sequence.index, sequence.run))

    def _begin_newcomers(self) -> None:
        """A first step of the newcomers by themselves, before they join the batch; where it fails, the batch's next one tells why."""
        if not self._newcomers.sequences:
            return
        results: list[Outcome] = []
        try:
            results = self._newcomers.step(short=True)
        except Exception as error:
            log.error("a first step failed; it is tried again with all", exc_info=error)
        self._batch.take(self._newcomers)
        self._publish_step(results)

    def _step(self) -> None:
        """One step for all sequences; where it fails, each tries it alone."""
        if not self._batch.sequences:
            return
        try:
            results = step(self._batch, self._free_memory)
        except Exception as error:
            if is_out_of_memory(error):
                self._fail_longest()
                return
            log.error("a step failed; its sequences go on one by one", exc_info=error)
            results = self._step_alone()
        self._publish_step(results)

    def _publish_step(self, results: list[Outcome]) -> None:
        """Tell what a step decided, and finish what it ended."""
        if not results:
            return
        self.statistics.rounds += 1
        own = Counter(self._group(outcome.sequence) for outcome in results)
        for outcome in results:
            sequence = outcome.sequence
            if (group := self._scheduler.group_of(sequence)) is None:  # one of its group has failed just now
                continue
            if outcome.error is not None:
                self._fail(group, self._explained(outcome.error, 1, sequence.length_limit))
            else:
                sequence.run.neighbours = max(sequence.run.neighbours, len(results) - own[group])
                self.statistics.count(len(outcome.token_ids), outcome.examined, outcome.accepted)
                self._publish(
                    sequence, Decided(sequence.index, sequence.run, outcome.round, outcome.token_ids)
                )
                if sequence.run.stop_reason:
                    self._finish(sequence)

    def _step_alone(self) -> list[Outcome]:
        results: list[Outcome] = []
        for batch in self._batch.split():
            sequence, longest = batch.sequences[0], batch.longest
            try:
                results += batch.step()
                self._batch.take(batch)
            except Exception as error:  # itself, it would make a cycle with this frame
                results.append(Outcome(sequence, [], error=self._explained(error, 1, longest)))
        return results

    def _free_memory(self) -> bool:
        """Free what only makes texts faster: prefix caches, then captured passes. Returns True if any was freed."""
        cleared = [cache.clear() for cache in self._prefix_caches]
        if any(cleared):
            log.warning("memory ran out: prefix caches were cleared")
            give_back_memory()
            return True
        return self._batch.free_memory()

    def _fail_longest(self) -> None:
        """Memory is everybody's: the longest sequence makes room, and the step is tried again."""
        longest = max(self._batch.sequences, key=lambda sequence: (sequence.length_limit, sequence.index))
        self._fail(self._group(longest), out_of_memory(len(self._batch.sequences), self._batch.longest))

    def _explained(self, error: Exception, count: int, longest: int) -> EngineError:
        """An error of our own for what went wrong with some sequences alone."""
        if isinstance(error, EngineError):
            return EngineError(str(error))
        if is_out_of_memory(error):
            return out_of_memory(count, longest)
        log.error("a request failed", exc_info=error)
        return EngineError(
            "A model failed on this request and the run has ended; others are not affected. Try other settings."
        )

    # ---- ends ------------------------------------------------------------------------------------------------

    def _fail(self, group: SequenceGroup[Sequence], error: SpecvizError) -> None:
        """End a group with an error, and none beside it."""
        events = self._queues[group]
        for sequence in list(group.unfinished):
            sequence.run.stop_reason = "failed"
            self._finish(sequence, published=False)
        events.put(error)

    def _fail_all(self, sentence: str) -> None:
        """No caller may wait for what will not come."""
        with self._lock:
            for group in list(self._scheduler.groups):
                self._fail(group, EngineError(sentence))
            self._scheduler = Scheduler(self.max_sequences, self.queue)
            self._queues.clear()
            self._count()
        self._batch.clear()
        self._newcomers.clear()
        self._prefill = None

    def _finish(self, sequence: Sequence, published: bool = True) -> None:
        """A run is over, for the reason it says: its slot is free."""
        for batch in (self._batch, self._newcomers):
            if sequence in batch.sequences:
                batch.remove(sequence)
        if self._prefill and sequence in self._prefill.sequences:
            self._prefill = None
        self.statistics.finished[sequence.run.stop_reason] += 1
        if published:
            self._publish(sequence, Finished(sequence.index, sequence.run))
        with self._lock:
            group = self._scheduler.finish(sequence)
            if not group.unfinished:
                del self._queues[group]
        self._log(sequence, group)

    def _publish(self, sequence: Sequence, event: Event) -> None:
        self._queues[self._group(sequence)].put(event)

    def _group(self, sequence: Sequence) -> SequenceGroup[Sequence]:
        """The group of a sequence that is not over."""
        group = self._scheduler.group_of(sequence)
        assert group is not None
        return group

    def _log(self, sequence: Sequence, group: SequenceGroup[Sequence]) -> None:
        run = sequence.run
        fields = {
            "pair": self.pair.key,
            "method": run.method,
            "lenience": run.lenience,
            "temperature": run.temperature,
            "stop_reason": run.stop_reason,
            "prompt_tokens": sequence.prompt_length,
            "tokens": sequence.emitted,
            "rounds": len(run.rounds),
            "acceptance_rate": run.acceptance_rate,
            "seconds": round(time.monotonic() - group.arrival, 3),
            "neighbours": run.neighbours,
        }
        log.info("text finished", extra={"fields": fields})


class SharedStream(Stream[Event | Waiting]):
    """Events of one group: submits it on the first `next`, and aborts when it is closed or dropped.

    The engine refers to the group and the queue alone, never to this.
    """

    def __init__(self, engine: SharedEngine, group: SequenceGroup[Sequence]) -> None:
        self._engine, self._group = engine, group
        self._events = EventQueue()
        self._unfinished = len(group.sequences)
        self._queue_position = 0
        self._finalizer: weakref.finalize | None = None
        """Set once submitted."""

    def __next__(self) -> Event | Waiting:
        if not self._unfinished:
            raise StopIteration
        try:
            if self._finalizer is None:
                self._submit()
            event = self._receive()
        except BaseException:
            self.close()
            raise
        if isinstance(event, Exception):
            self._end()
            try:
                raise event
            finally:
                del event  # its traceback has this frame: a cycle would keep both
        self._queue_position = event.queue_position if isinstance(event, Waiting) else 0
        # It is 0 already where another thread closed this.
        self._unfinished = max(0, self._unfinished - isinstance(event, Finished))
        if not self._unfinished:
            self._end()
        return event

    def close(self) -> None:
        """As `Stream.close`."""
        self._unfinished = 0
        if self._finalizer:
            self._finalizer()

    def abort(self, index: int | None = None, reason: str = "cancelled") -> None:
        """As `Stream.abort`."""
        self._group.abort(index, reason)
        self._engine.wake()

    def _submit(self) -> None:
        self._engine.submit(self._group, self._events)
        self._finalizer = weakref.finalize(self, _abandon, self._engine, self._group)
        self._finalizer.atexit = False

    def _receive(self) -> Event | Waiting | Exception:
        try:
            return self._events.get(timeout=_BEAT)
        except Empty:
            if not self._engine.is_alive or time.monotonic() > self._group.deadline + _GRACE:
                raise EngineError(
                    "The engine does not answer: this run has ended; the next one should work."
                ) from None
            return Waiting(0, self._queue_position)

    def _end(self) -> None:
        """Nothing is left to abort."""
        self._unfinished = 0
        if self._finalizer:
            self._finalizer.detach()


def _abandon(engine: SharedEngine, group: SequenceGroup[Sequence]) -> None:
    """May run in any thread at any moment: takes no lock."""
    group.abort()
    engine.wake()


@dataclass(eq=False)
class _Prefill:
    """Sequences of a group whose prompts are being read, in a batch apart: what fails here, fails alone."""

    sequences: list[Sequence]
    batch: Batch
    passes: Iterator[None]


class _Call:
    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function
        self.result: Future[object] = Future()

    def run(self) -> None:
        try:
            self.result.set_result(self._function())
        except BaseException as error:
            self.result.set_exception(error)
            del self  # the error's traceback has this frame: a cycle would keep both
