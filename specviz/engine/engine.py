"""The generator for one caller: serves its requests as one batch and tells what happens as it happens.

Knows requests, pairs and batches; knows no page and no file, and nobody but the one who asks. Many who ask at once
share an engine of `specviz.serving.shared_engine`, which tells the same events.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from specviz.engine.batch import Batch, CostTable
from specviz.engine.draft_length import Costs
from specviz.engine.sequence import Row
from specviz.errors import EngineError, is_out_of_memory
from specviz.models.tokenizer import Labels
from specviz.schema.settings import Request
from specviz.schema.trace import Round, Run

if TYPE_CHECKING:
    from specviz.models.pairs import ModelPair

T = TypeVar("T")


@dataclass(frozen=True)
class Waiting:
    """A request has not been admitted yet; `place` 1 is the next, 0 is being read. Only shared engines tell it."""

    index: int
    place: int


@dataclass(frozen=True)
class Started:
    """A request was admitted and its prompt read."""

    index: int
    run: Run


@dataclass(frozen=True)
class Decided:
    """A round of a request is over; `run` already holds it."""

    index: int
    run: Run
    round: Round


@dataclass(frozen=True)
class Finished:
    """A request is over; `run.stop_reason` says why."""

    index: int
    run: Run


Event = Started | Decided | Finished


class Engine:
    """Serves requests on one model pair."""

    def __init__(self, pair: ModelPair, *, max_rows: int = 32) -> None:
        """Serve up to `max_rows` requests at once; further ones wait for a row."""
        self.pair = pair
        self.max_rows = max_rows
        self._labels = Labels(pair.tokenizer)
        self._costs: CostTable = defaultdict(Costs)

    def generate(
        self, requests: Request | Sequence[Request], *, stop: threading.Event | None = None
    ) -> list[Run]:
        """Serve all requests and return their runs in order. `stop` and errors are as for `stream`."""
        return finished(self.stream(requests, stop=stop))

    def stream(
        self, requests: Request | Sequence[Request], *, stop: threading.Event | None = None
    ) -> Iterator[Event]:
        """Serve requests as one batch, yielding what happens as it happens.

        Closing the iterator, or setting `stop`, ends all runs before the next round; with `stop` their
        `Finished` events still come, with stop_reason "cancelled". Either way all memory is freed. One run alone ends
        with its round when a `stop_reason` is set on it, between two events.

        Raises:
            RequestError: at once, before anything runs, if any request does not fit the pair.
            EngineError: memory ran out, or a model returned numbers that are not finite.
        """
        requests = [requests] if isinstance(requests, Request) else list(requests)
        rows = [Row(index, request, self.pair, self._labels) for index, request in enumerate(requests)]
        return self._serve(rows, stop or threading.Event())

    def call(self, function: Callable[[], T]) -> T:
        """What `function` gives: work on the pair's models that is no generating."""
        return function()

    def _serve(self, waiting: list[Row], stop: threading.Event) -> Iterator[Event]:
        batch = Batch(self.pair, self._costs)
        try:
            while waiting or batch.rows:
                if stop.is_set():
                    for row in [*batch.rows, *waiting]:
                        row.run.stop_reason = "cancelled"
                        yield Finished(row.index, row.run)
                    return
                free = min(self.max_rows - len(batch.rows), len(waiting))
                if free:
                    free = batch.room_for(waiting[:free])
                joining, waiting = waiting[:free], waiting[free:]
                if joining:
                    for _ in batch.read(joining):
                        if stop.is_set():
                            break
                    yield from (Started(row.index, row.run) for row in joining)
                    continue
                for row, outcome in _round(batch):
                    if isinstance(outcome, Exception):
                        raise outcome
                    yield Decided(row.index, row.run, outcome)
                    if row not in batch.rows:
                        yield Finished(row.index, row.run)
                yield from (Finished(row.index, row.run) for row in batch.dismiss())
        except Exception as error:
            if is_out_of_memory(error):
                raise out_of_memory(len(batch.rows), batch.longest) from error
            raise


def _round(batch: Batch) -> list[tuple[Row, Round | Exception]]:
    """One round; a second time where memory runs out and there is something to spare."""
    try:
        return batch.step()
    except Exception as error:
        if not (is_out_of_memory(error) and batch.economise()):
            raise
    return batch.step()


def finished(events: Iterable[Event | Waiting]) -> list[Run]:
    """The runs that have ended when all is told, in the order of their requests."""
    runs = {event.index: event.run for event in events if isinstance(event, Finished)}
    return [runs[index] for index in sorted(runs)]


def out_of_memory(rows: int, longest: int) -> EngineError:
    """The sentence for memory that ran out."""
    return EngineError(
        f"Memory ran out with {rows} request(s) of up to {longest} tokens at once: "
        "ask for fewer tokens, a shorter prompt or fewer runs."
    )
