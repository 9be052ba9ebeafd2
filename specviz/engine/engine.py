"""The generator for one caller: serves its requests as one batch and streams events as they happen.

Knows requests, pairs and batches; knows no page and no file, and no other caller. Callers who share a pair use the engine of
`specviz.serving.shared_engine`, which streams the same events.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from collections.abc import Sequence as SequenceOf
from typing import TYPE_CHECKING, Any, Generic

from specviz.engine.batch import Batch
from specviz.engine.events import E, Event, Finished, Started, Stream, finished
from specviz.engine.scheduler import Scheduler, SequenceGroup
from specviz.engine.sequence import Sequence
from specviz.errors import EngineError, RequestError, is_out_of_memory
from specviz.models.decoding import TokenLabels
from specviz.models.tokenizer import encoding
from specviz.schema.settings import Request
from specviz.schema.trace import Run

if TYPE_CHECKING:
    from specviz.models.pair import ModelPair


class BaseEngine(ABC, Generic[E]):
    """Base class of engines for one caller and of shared engines."""

    def __init__(self, pair: ModelPair, **options: Any) -> None:
        """`options` are passed to every `Sequence`."""
        self.pair = pair
        self._labels, self._options = TokenLabels(pair.tokenizer), options

    def stream(
        self,
        requests: Request | SequenceOf[Request],
        *,
        stop: threading.Event | None = None,
        visitor: str = "",
    ) -> Stream[E]:
        """Serve requests as one group; the stream yields events as they happen.

        Closing or dropping the stream, or setting `stop`, ends all runs before the next round and frees their slots. After `stop`,
        as after `Stream.abort`, the `Finished` events of these runs still come, with stop_reason "cancelled".

        A shared engine yields `Waiting` when the queue position changes, and after each second without another event. The deadline counts
        from the first `next`; a run that reaches the deadline ends with stop_reason "time".

        Args:
            requests: the requests to serve together. The `index` of an event is that of its request.
            stop: when set, ends all runs.
            visitor: any name for the caller; shared engines give each visitor an equal share.

        Raises:
            RequestError: at once, before anything runs, if any request does not fit the pair, or a shared engine refuses its prompt.
            EngineError: while streaming; memory ran out, a model returned numbers that are not finite, or a shared engine was closed.
            BusyError: while streaming; a shared engine's queue is full, or no slot was free before the deadline.
        """
        requests = [requests] if isinstance(requests, Request) else list(requests)
        with encoding:
            sequences = [
                Sequence(*each, self.pair, self._labels, **self._options) for each in enumerate(requests)
            ]
        return self._serve(SequenceGroup(sequences, visitor, (stop or threading.Event()).is_set))

    @abstractmethod
    def _serve(self, group: SequenceGroup[Sequence]) -> Stream[E]:
        """The stream of a group's events."""

    def generate(
        self, requests: Request | SequenceOf[Request], *, stop: threading.Event | None = None
    ) -> list[Run]:
        """Serve all requests and return their runs in order. `stop` and errors are as for `stream`."""
        return finished(self.stream(requests, stop=stop))


class Engine(BaseEngine[Event]):
    """Serves requests on one model pair, for one caller."""

    def __init__(self, pair: ModelPair, *, max_sequences: int = 32, records: bool = True) -> None:
        """Serve up to `max_sequences` requests at once; further ones wait for a slot.

        Without `records`, runs hold no rounds and no tokens: `Decided` has only the token ids.

        Raises:
            RequestError: `max_sequences` is below 1.
        """
        if max_sequences < 1:
            raise RequestError(f"max_sequences is {max_sequences}; it must be at least 1.")
        super().__init__(pair, records=records)
        self.max_sequences = max_sequences

    def _serve(self, group: SequenceGroup[Sequence]) -> Stream[Event]:
        return _EngineStream(group, self._events(group))

    def _events(self, group: SequenceGroup[Sequence]) -> Iterator[Event]:
        batch = Batch(self.pair)
        scheduler: Scheduler[Sequence] = Scheduler(self.max_sequences)
        scheduler.submit(group)
        try:
            while scheduler.groups:
                for sequence, reason in scheduler.leaving(0.0):
                    if sequence in batch.sequences:
                        batch.remove(sequence)
                    scheduler.finish(sequence)
                    sequence.cut(reason)
                    yield Finished(sequence.index, sequence.run)
                if admitted := scheduler.admit(batch.room_for):
                    for _ in batch.read(admitted):
                        if group.stopped():
                            break
                    scheduler.prefilled(admitted)
                    yield from (Started(sequence.index, sequence.run) for sequence in admitted)
                elif scheduler.decoding:
                    yield from _rounds(batch, scheduler)
        except Exception as error:
            if is_out_of_memory(error):
                raise out_of_memory(len(batch.sequences), batch.longest) from error
            raise
        finally:
            batch.clear()


class _EngineStream(Stream[Event]):
    """Drives the engine: `next` runs it to the next event. Dropping the stream closes the generator, which clears the batch."""

    def __init__(self, group: SequenceGroup[Sequence], events: Iterator[Event]) -> None:
        self._group, self._events = group, events

    def __next__(self) -> Event:
        return next(self._events)

    def close(self) -> None:
        self._events.close()  # type: ignore[attr-defined]

    def abort(self, index: int | None = None) -> None:
        self._group.abort(index)


def _rounds(batch: Batch, scheduler: Scheduler[Sequence]) -> Iterator[Event]:
    """Run one step of the batch and yield its events; raises the error of a failed sequence."""
    for outcome in batch.step():
        sequence = outcome.sequence
        if (error := outcome.error) is not None:
            try:
                raise error
            finally:
                del error, outcome  # its traceback refers to this frame: the cycle would keep sequences alive
        yield outcome.decided
        if sequence not in batch.sequences:
            scheduler.finish(sequence)
            yield Finished(sequence.index, sequence.run)


def out_of_memory(count: int, longest: int) -> EngineError:
    """The error for memory that ran out with `count` sequences, the longest of `longest` tokens."""
    return EngineError(
        f"Memory ran out with {count} request(s) of up to {longest} tokens at once: "
        "ask for fewer tokens, a shorter prompt or fewer runs."
    )
