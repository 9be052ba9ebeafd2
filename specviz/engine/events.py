"""The events of requests while they are served, and the stream that delivers them. Knows no engine and no model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from specviz.schema.trace import Round, Run


@dataclass(frozen=True)
class Waiting:
    """A request waits for a slot, for the end of its prefill or, in slow steps, for its next round. Only shared engines send it."""

    index: int
    queue_position: int  # 1 is the next to be admitted, 0 has been admitted


@dataclass(frozen=True)
class Loading(Waiting):
    """A request waits for its models to load; `text` says what is being done. Only services send it."""

    text: str


@dataclass(frozen=True)
class Started:
    """A request was admitted and its prompt read."""

    index: int
    run: Run


@dataclass(frozen=True)
class Decided:
    """A round of a request is over; `run` already includes it."""

    index: int
    run: Run
    record: Round | None  # None where the engine keeps no records
    token_ids: Sequence[int] = ()  # emitted in this round

    @property
    def round(self) -> Round:
        """The record of the round; only for engines that keep records."""
        assert self.record is not None
        return self.record


@dataclass(frozen=True)
class Finished:
    """A request is over; `run.stop_reason` says why."""

    index: int
    run: Run


Event = Started | Decided | Finished

E = TypeVar("E", bound=Event | Waiting, covariant=True)


class Stream(ABC, Iterator[E], Generic[E]):
    """The events of the requests of one call, as they happen.

    Nothing is served before the first `next`: a stream holds no slot if it was never started, was closed, or is no
    longer referenced. One thread iterates and closes; any thread may call `abort` and, on a shared engine's stream, `close`.
    """

    @abstractmethod
    def close(self) -> None:
        """End all requests; no further event comes."""

    @abstractmethod
    def abort(self, index: int | None = None) -> None:
        """End one request, or all, before its next round; its `Finished` still comes, with stop reason "cancelled".

        A request that is over already stays as it is.
        """


def finished(events: Iterable[Event | Waiting]) -> list[Run]:
    """Exhaust a stream; returns the runs that have ended, in the order of their requests."""
    runs = {event.index: event.run for event in events if isinstance(event, Finished)}
    return [runs[index] for index in sorted(runs)]
