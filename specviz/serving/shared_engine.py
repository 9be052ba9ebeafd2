"""One engine for all who ask at once: a thread that serves one pair, letting requests join and leave between rounds.

Whoever waits is told their place; rows are given out fairly; a request that fails takes nobody with it. Knows
requests, visitors (as opaque names), clocks and batches; knows no page, and decides nothing about a text: that is the
same alone or in company (law 3 of README).
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, TypeVar

from specviz.engine.batch import Batch, CostTable
from specviz.engine.draft_length import Costs
from specviz.engine.engine import Decided, Event, Finished, Started, Waiting, finished, out_of_memory
from specviz.engine.sequence import Row
from specviz.errors import BROKEN, BusyError, EngineError, SpecvizError, is_out_of_memory
from specviz.models.tokenizer import Labels
from specviz.progress import Progress
from specviz.runtime.machine import give_back_memory
from specviz.runtime.prefix_cache import Prefixes
from specviz.schema.settings import Request
from specviz.schema.trace import Round, Run
from specviz.serving.statistics import PairTally

if TYPE_CHECKING:
    from specviz.models.pairs import ModelPair

log = logging.getLogger(__name__)

T = TypeVar("T")

CHUNK = 128
"""Prompt tokens of a row that are read between two rounds of the others."""
_BEAT = 1.0
"""Seconds of silence after which whoever listens hears that it still waits, and can notice that its client has gone."""
_GRACE = 60.0
"""Seconds past its deadline after which a request no longer believes that the thread will answer."""
_IDLE = 2.0
"""Seconds without work after which memory that is free is given back to the system."""
_STOPPED = "The server has ended this run because it is being stopped."


class SharedEngine:
    """Serves requests from many threads on one pair."""

    def __init__(
        self,
        pair: ModelPair,
        *,
        max_rows: int = 32,
        queue: int = 64,
        seconds: float = 300,
        tally: PairTally | None = None,
    ) -> None:
        """Start the thread.

        Args:
            pair: what to serve on; nobody else may run its models at the same time.
            max_rows: texts written at once.
            queue: texts that may wait beyond these.
            seconds: from asking to the end of a text; what there is by then is kept.
            tally: where to count.
        """
        self.pair = pair
        self.max_rows, self.queue, self.seconds = max_rows, queue, seconds
        self.tally = tally or PairTally(pair.key, max_rows)
        self._labels = Labels(pair.tokenizer)
        self._costs: CostTable = defaultdict(Costs)
        self._known = (Prefixes(), Prefixes())
        self._batch = Batch(pair, self._costs)
        self._reading: _Reading | None = None
        self._arrived: list[_Ticket] = []
        self._tickets: list[_Ticket] = []
        self._of: dict[Row, _Ticket] = {}
        self._work: SimpleQueue[_Work] = SimpleQueue()
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._closing, self._tidy = False, True
        self._thread = threading.Thread(target=self._run, name=f"specviz-engine-{pair.key}", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the thread still serves."""
        return self._thread.is_alive()

    @property
    def is_idle(self) -> bool:
        """Whether nobody is being served or waits."""
        return not (self._arrived or self._tickets) and self._work.empty()

    def close(self) -> None:
        """End all runs as cancelled, and the thread; all memory but the models' is free then."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()

    # ---- for those who ask, from any thread ----------------------------------------------------------------

    def stream(
        self,
        requests: Request | Sequence[Request],
        *,
        stop: threading.Event | None = None,
        visitor: str = "",
    ) -> Iterator[Event | Waiting]:
        """Serve requests of one visitor, yielding what happens as it happens; as `Engine.stream`.

        `Waiting` comes whenever a place in the queue changes, and at least once a second while nothing else does.
        A deadline ends a run with stop_reason "time".

        Raises:
            RequestError: at once, if a request does not fit the pair.
            BusyError: at once, if too many wait; later, if the deadline passes before there was a free row.
            EngineError: memory ran out, a model failed on this very request, or the engine was closed.
        """
        requests = [requests] if isinstance(requests, Request) else list(requests)
        rows = [_row(index, request, self.pair, self._labels) for index, request in enumerate(requests)]
        now = time.monotonic()
        ticket = _Ticket(
            next(self._numbers), visitor, rows, stop or threading.Event(), now, now + self.seconds
        )
        if not rows:
            return iter(())
        with self._changed:
            if self._closing:
                raise EngineError(_STOPPED)
            waiting = self.tally.waiting + sum(len(each.rows) for each in self._arrived)
            free = max(0, self.max_rows - self.tally.running)
            if waiting and waiting + len(rows) > free + self.queue:
                self.tally.refused += len(rows)
                raise BusyError("SpecViz is busy and its queue is full: try again in a minute.")
            self._arrived.append(ticket)
            self._changed.notify_all()
        return self._listen(ticket)

    def generate(
        self, requests: Request | Sequence[Request], *, stop: threading.Event | None = None
    ) -> list[Run]:
        """Serve all requests and return their runs in order. `stop` and errors are as for `stream`."""
        return finished(self.stream(requests, stop=stop))

    def call(self, function: Callable[[], T]) -> T:
        """What `function` gives, done between two rounds: work on the pair's models that is no generating."""
        work = _Work(function)
        with self._changed:
            if self._closing:
                raise EngineError(_STOPPED)
            self._work.put(work)
            self._changed.notify_all()
        result: T = work.result.result()  # type: ignore[assignment]
        return result

    def warm_up(self, progress: Progress) -> None:
        """Make the first text as fast as the next ones, where the device needs time for that: see `Batch.warm_up`."""

        def capture() -> None:
            for count, _ in enumerate(self._batch.warm_up(), 1):
                progress(1.0, f"Getting the GPU ready: forward pass {count}")

        self.call(capture)

    def _listen(self, ticket: _Ticket) -> Iterator[Event | Waiting]:
        place, left = 0, len(ticket.rows)
        try:
            while left:
                try:
                    event = ticket.events.get(timeout=_BEAT)
                except Empty:
                    if not self.is_alive or time.monotonic() > ticket.deadline + _GRACE:
                        raise EngineError(
                            "The engine does not answer: this run has ended; the next one should work."
                        ) from None
                    event = Waiting(0, place)
                if isinstance(event, Exception):
                    raise event
                place = event.place if isinstance(event, Waiting) else 0
                left -= isinstance(event, Finished)
                yield event
        finally:
            ticket.gone = True
            with self._changed:
                self._changed.notify_all()

    # ---- the thread ----------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._await_work():
                begin = time.monotonic()
                try:
                    self._turn()
                except Exception as error:
                    log.error("the engine starts anew", exc_info=error)
                    self._end_all(EngineError(BROKEN))
                self.tally.busy_seconds += time.monotonic() - begin
        finally:
            with self._changed:
                self._closing = True
                self._arrive()
                self._end_all(EngineError(_STOPPED))
                while not self._work.empty():
                    self._work.get().result.set_exception(EngineError(_STOPPED))

    def _await_work(self) -> bool:
        """Wait until there is something to do; False when the engine is being closed."""
        while True:
            with self._changed:
                if self._changed.wait_for(self._has_work, None if self._tidy else _IDLE):
                    self._arrive()
                    self._tidy = False
                    return not self._closing
            give_back_memory()
            self._tidy = True

    def _has_work(self) -> bool:
        return bool(self._closing or self._arrived or self._tickets or not self._work.empty())

    def _arrive(self) -> None:
        for ticket in self._arrived:
            self._tickets.append(ticket)
            self._of |= dict.fromkeys(ticket.rows, ticket)
            self.tally.waiting += len(ticket.rows)
        self._arrived.clear()

    def _turn(self) -> None:
        """One turn: what others asked for between rounds, who leaves, who joins, and a round."""
        while not self._work.empty():
            self._work.get().do()
        self._leave()
        self._admit()
        self._read()
        self._step()
        self.tally.running = len(self._batch.rows) + len(self._reading.rows if self._reading else [])
        self.tally.waiting = sum(len(ticket.waiting) for ticket in self._tickets)

    def _leave(self) -> None:
        """Let go whoever stopped, has gone, or is out of time."""
        now = time.monotonic()
        for ticket in list(self._tickets):
            reason = "cancelled" if ticket.gone or ticket.stop.is_set() else ""
            if not reason and now > ticket.deadline:
                if len(ticket.waiting) == len(ticket.rows):
                    self._fail(
                        ticket,
                        BusyError(
                            f"SpecViz was too busy: nothing was free for {self.seconds:g} seconds. "
                            "Try again in a minute."
                        ),
                    )
                    continue
                reason = "time"
            if reason:
                for row in ticket.left:
                    row.run.stop_reason = reason
                self._dismiss(ticket)

    def _dismiss(self, ticket: _Ticket) -> None:
        """Let go a ticket's rows whose runs have ended, wherever they are."""
        self._batch.dismiss()
        if self._reading and self._reading.ticket is ticket:
            self._reading = None
        for row in [row for row in ticket.left if row.run.stop_reason]:
            self._finish(ticket, row)

    def _admit(self) -> None:
        """Give free rows to those who have fewest, the first come first; one ticket's are read at a time."""
        order = self._order()
        if self._reading is None and order:
            running = Counter(self._of[row].visitor for row in self._batch.rows)
            visitors = {ticket.visitor for ticket in self._tickets}
            share = max(1, self.max_rows // len(visitors))
            free = self.max_rows - len(self._batch.rows)
            ticket = next((ticket for ticket, _ in order if running[ticket.visitor] < share), None)
            count = 0
            if ticket and free > 0:
                count = min(free, share - running[ticket.visitor], len(ticket.waiting))
                count = self._batch.room_for(ticket.waiting[:count])
            if ticket and count:
                rows, ticket.waiting = ticket.waiting[:count], ticket.waiting[count:]
                ticket.place = 0
                self.tally.waited_seconds += count * (time.monotonic() - ticket.asked)
                self._reading = self._to_read(ticket, rows)
                order = self._order()
        places: dict[int, int] = {}
        for place, (ticket, _) in enumerate(order, 1):
            places.setdefault(ticket.number, place)
        for ticket in self._tickets:
            place = places.get(ticket.number, 0)
            if place and place != ticket.place and len(ticket.waiting) == len(ticket.rows):
                ticket.events.put(Waiting(ticket.waiting[0].index, place))
            ticket.place = place

    def _to_read(self, ticket: _Ticket, rows: list[Row]) -> _Reading:
        return _Reading(ticket, rows, Batch(self.pair, self._costs, self._known, apart=True))

    def _order(self) -> list[tuple[_Ticket, Row]]:
        """Rows that wait, the next one first: whoever has fewest goes before, then whoever came before."""
        seated = Counter(self._of[row].visitor for row in self._batch.rows)
        if self._reading:
            seated[self._reading.ticket.visitor] += len(self._reading.rows)
        ranked = []
        for ticket in self._tickets:
            for row in ticket.waiting:
                ranked.append((seated[ticket.visitor], ticket.number, ticket, row))
                seated[ticket.visitor] += 1
        ranked.sort(key=lambda each: each[:2])
        return [(ticket, row) for *_, ticket, row in ranked]

    def _read(self) -> None:
        """Read one stretch of the joining prompts, and let the rows join when they are read."""
        if (reading := self._reading) is None:
            return
        try:
            if reading.go_on(CHUNK if self._batch.rows else None):
                return
            self._batch.take(reading.batch)
        except Exception as error:
            self._reading = None
            if is_out_of_memory(error) and self._batch.economise():
                self._reading = self._to_read(reading.ticket, reading.rows)
            else:
                self._fail(reading.ticket, self._told(error, len(reading.rows), reading.batch.longest))
            return
        self._reading = None
        for row in reading.rows:
            reading.ticket.events.put(Started(row.index, row.run))

    def _step(self) -> None:
        """One round for all rows; where it fails, each row tries it alone."""
        if not self._batch.rows:
            return
        try:
            results = self._batch.step()
        except Exception as error:
            if is_out_of_memory(error):
                # Memory is everybody's: speed makes room, then the longest text; and the round is tried again.
                if self._batch.economise():
                    return
                row = max(self._batch.rows, key=lambda row: (row.prompt_length + row.limit, row.index))
                told = out_of_memory(len(self._batch.rows), self._batch.longest)
                self._fail(self._of[row], told)
                return
            log.error("a round failed; its rows go on one by one", exc_info=error)
            results = self._step_alone()
        self.tally.rounds += 1
        own = Counter(self._of[row] for row, _ in results)
        for row, outcome in results:
            if (ticket := self._of.get(row)) is None:  # a row beside it has failed just now
                continue
            if isinstance(outcome, Exception):
                self._fail(ticket, self._told(outcome, 1, row.prompt_length + row.limit))
            else:
                row.run.neighbours = max(row.run.neighbours, len(results) - own[ticket])
                self.tally.count(outcome)
                ticket.events.put(Decided(row.index, row.run, outcome))
                if row.run.stop_reason:
                    self._finish(ticket, row)

    def _step_alone(self) -> list[tuple[Row, Round | Exception]]:
        results: list[tuple[Row, Round | Exception]] = []
        for batch in self._batch.split():
            row = batch.rows[0]
            try:
                results += batch.step()
                self._batch.take(batch)
            except Exception as error:
                results.append((row, error))
        return results

    def _told(self, error: Exception, rows: int, longest: int) -> EngineError:
        """The sentence for whatever went wrong for somebody's rows alone."""
        if isinstance(error, EngineError):
            return error
        if is_out_of_memory(error):
            return out_of_memory(rows, longest)
        log.error("a request failed", exc_info=error)
        return EngineError(
            "A model failed on this request and the run has ended; others are not affected. Try other settings."
        )

    def _fail(self, ticket: _Ticket, error: SpecvizError) -> None:
        """End a ticket with an error, and none beside it."""
        for row in ticket.left:
            row.run.stop_reason = "failed"
        self._batch.dismiss()
        if self._reading and self._reading.ticket is ticket:
            self._reading = None
        for row in list(ticket.left):
            self._finish(ticket, row, told=False)
        ticket.events.put(error)

    def _finish(self, ticket: _Ticket, row: Row, told: bool = True) -> None:
        """A run is over."""
        run = row.run
        ticket.left.remove(row)
        del self._of[row]
        if row in ticket.waiting:
            ticket.waiting.remove(row)
        self.tally.finished[run.stop_reason] += 1
        if told:
            ticket.events.put(Finished(row.index, run))
        if not ticket.left:
            self._tickets.remove(ticket)
        log.info(
            "text finished",
            extra={
                "fields": {
                    "pair": self.pair.key,
                    "method": run.method,
                    "lenience": run.lenience,
                    "temperature": run.temperature,
                    "stop_reason": run.stop_reason,
                    "prompt_tokens": row.prompt_length,
                    "tokens": len(row.ids) - row.prompt_length,
                    "rounds": len(run.rounds),
                    "acceptance_rate": run.acceptance_rate,
                    "seconds": round(time.monotonic() - ticket.asked, 3),
                    "neighbours": run.neighbours,
                }
            },
        )

    def _end_all(self, error: EngineError) -> None:
        """Nobody may wait for what will not come."""
        for ticket in list(self._tickets):
            self._fail(ticket, error)
        self._batch.clear()
        self._reading = None
        self.tally.running = self.tally.waiting = 0


@dataclass(eq=False)
class _Ticket:
    """What one visitor asked for at once."""

    number: int
    visitor: str
    rows: list[Row]
    stop: threading.Event
    asked: float
    deadline: float
    gone: bool = False
    """Nobody listens any more."""
    place: int = 0
    """In the queue, as last told."""
    waiting: list[Row] = field(init=False)
    """Rows that have no place in a batch yet."""
    left: list[Row] = field(init=False)
    """Rows that are not over."""
    events: SimpleQueue[Event | Waiting | Exception] = field(default_factory=SimpleQueue)

    def __post_init__(self) -> None:
        self.waiting, self.left = list(self.rows), list(self.rows)


class _Reading:
    """Rows of a ticket whose prompts are being read, apart from the others: what fails here, fails alone."""

    def __init__(self, ticket: _Ticket, rows: list[Row], batch: Batch) -> None:
        self.ticket, self.rows, self.batch = ticket, rows, batch
        self._passes: Iterator[None] | None = None

    def go_on(self, chunk: int | None) -> bool:
        """Read on; whether more is left."""
        if self._passes is None:
            self._passes = self.batch.read(self.rows, chunk)
        return next(self._passes, _OVER) is not _OVER


_OVER = object()


class _Work:
    """Something to be done on the thread, and what came of it."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function
        self.result: Future[object] = Future()

    def do(self) -> None:
        """Do it."""
        try:
            self.result.set_result(self._function())
        except BaseException as error:
            self.result.set_exception(error)


_encoding = threading.Lock()


def _row(index: int, request: Request, pair: ModelPair, labels: Labels) -> Row:
    """A row, made by one thread at a time: a fast tokenizer must not be set up by two at once."""
    with _encoding:
        return Row(index, request, pair, labels)
