"""The loaded pairs, shared by all visitors: loads them when asked for, and serves requests on them.

The page's only door to models and engines. Knows limits and visitors (as opaque names); knows no page; imports torch
only when there is work.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from specviz.errors import BusyError, NoRoomError, PairError, SpecvizError
from specviz.progress import Progress
from specviz.schema.settings import Request
from specviz.schema.trace import end_line, header_line, round_line
from specviz.serving.limits import Limits
from specviz.serving.statistics import PairTally

if TYPE_CHECKING:
    from specviz.analysis.sweep.plan import Plan
    from specviz.analysis.sweep.store import Recorded
    from specviz.engine.engine import Event, Waiting
    from specviz.serving.shared_engine import SharedEngine

_POLL_SECONDS = 0.2

log = logging.getLogger(__name__)


class Service:
    """Holds a few pairs in memory, an engine for each; the one not used for longest makes room for another."""

    def __init__(self, limits: Limits | None = None) -> None:
        """Serve within `limits`, by default those of the environment."""
        self.limits = limits or Limits.from_environment()
        self._places: dict[str, _Place] = {}
        self._tallies: dict[str, PairTally] = {}
        self._visits: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._closed = False

    @property
    def healthy(self) -> bool:
        """Whether requests can be served: not closed, and every engine alive."""
        engines = [place.engine for place in list(self._places.values())]
        return not self._closed and all(engine.is_alive for engine in engines if engine)

    def status(self) -> list[PairTally]:
        """What has been done and is being done on each pair that was ever asked for."""
        return [replace(tally, finished=Counter(tally.finished)) for tally in list(self._tallies.values())]

    def close(self) -> None:
        """End all runs and all engines, and free the models."""
        with self._lock:
            self._closed = True
            places, self._places = list(self._places.values()), {}
        for place in places:
            self._unload(place)

    def warm_up(self, key: str, progress: Progress | None = None) -> threading.Thread:
        """Load a pair in the background. A failure is left for the first request to hear of."""

        def load() -> None:
            try:
                with self.engine(key, progress):
                    pass
            except SpecvizError as error:
                if progress:
                    progress(0.0, str(error))

        thread = threading.Thread(target=load, name="specviz-warm-up", daemon=True)
        thread.start()
        return thread

    def events(
        self,
        key: str,
        requests: Sequence[Request],
        stop: threading.Event,
        progress: Progress | None = None,
        *,
        visitor: str = "",
    ) -> Iterator[Event | Waiting]:
        """Serve requests of one visitor as one group, loading their pair first if need be.

        Args:
            key: of the pair.
            requests: texts to write side by side.
            stop: ends them before the next round.
            progress: told how far loading is.
            visitor: whoever asks, under any name; "" is nobody in particular, who may ask for any number.

        Yields:
            What happens as it happens, `Waiting` for a row among it; closing the iterator ends all runs.

        Raises:
            RequestError, BusyError, PairError, EngineError: it is too much or does not fit; loading or writing failed.
        """
        with self._visit(visitor, requests), self.engine(key, progress) as engine:
            yield from engine.stream(requests, stop=stop, visitor=visitor)

    def lines(
        self,
        key: str,
        request: Request,
        stop: threading.Event,
        progress: Progress | None = None,
        *,
        visitor: str = "",
    ) -> Iterator[str]:
        """Serve one request; yields its trace line by line, as rounds are decided. Arguments and errors as for `events`.

        While it waits for its turn, {"type": "waiting", "place"} comes and an empty line, which asks to show it.
        """
        from specviz.analysis.comparison import waiting
        from specviz.engine.engine import Decided, Finished, Waiting

        begun = False
        for event in self.events(key, [request], stop, progress, visitor=visitor):
            if isinstance(event, Waiting):
                yield from [""] if begun else waiting(event.place)
                continue
            if not begun:  # also where a stop came before the start
                yield header_line(event.run)
                begun = True
            if isinstance(event, Decided):
                yield round_line(event.round)
            elif isinstance(event, Finished):
                yield end_line(event.run)

    def compare_lines(
        self,
        key: str,
        requests: Sequence[Request],
        stop: threading.Event,
        progress: Progress | None = None,
        *,
        measure_alone: bool = True,
        visitor: str = "",
    ) -> Iterator[str]:
        """Serve several requests as one group and say how they compare; yields the lines of `specviz.analysis.comparison`.

        Arguments and errors as for `events`.
        """
        self.limits.check_panes(requests)
        with self._visit(visitor, requests), self.engine(key, progress) as engine:
            from specviz.analysis.comparison import compare

            yield from compare(engine, requests, stop, measure_alone=measure_alone, visitor=visitor)

    def sweep(
        self,
        key: str,
        plan: Plan,
        stop: threading.Event,
        progress: Progress | None = None,
        *,
        visitor: str = "",
    ) -> Iterator[Recorded]:
        """Go through a small sweep; yields what is known after every item at every temperature.

        Arguments and errors as for `events`.
        """
        with self._visit(visitor, ()), self.engine(key, progress) as engine:
            from specviz.analysis.sweep.items import load_items
            from specviz.analysis.sweep.job import Job
            from specviz.analysis.sweep.sample import Sample
            from specviz.analysis.sweep.store import Recorded

            job = Job(plan, engine.pair, load_items(plan.prompts, plan.limit), engine=engine)
            samples: list[Sample] = []
            for count, unit in enumerate(job.units, 1):
                found = job.samples(unit, stop)
                if found is None:
                    return
                samples += found
                if progress:
                    progress(count / len(job.units), f"Item {unit.item + 1} of {len(job.items.items)}")
                yield Recorded(job.header.results(samples), job.items.items, list(samples))

    @contextmanager
    def _visit(self, visitor: str, requests: Sequence[Request]) -> Iterator[None]:
        """Keep to what one visitor may ask for."""
        for request in requests:
            self.limits.check(request)
        with self._lock:
            if visitor and self._visits[visitor] >= self.limits.per_visitor:
                raise BusyError(
                    f"You keep SpecViz busy with {self._visits[visitor]} runs already, as many as one visitor may have: "
                    "wait for one to end, or stop it."
                )
            self._visits[visitor] += 1
        try:
            yield
        finally:
            with self._lock:
                self._visits[visitor] -= 1
                if not self._visits[visitor]:
                    del self._visits[visitor]

    @contextmanager
    def engine(self, key: str, progress: Progress | None = None) -> Iterator[SharedEngine]:
        """The engine of a pair, which is not unloaded meanwhile; loads it where it is not there, others go on.

        Raises:
            PairError: the pair cannot be had. The next call tries afresh.
            BusyError: as many pairs are in use as may be in memory.
        """
        place = self._seat(key)
        try:
            while not place.lock.acquire(timeout=_POLL_SECONDS):
                if progress:
                    progress(*place.loading)
            try:
                if place.engine is None or not place.engine.is_alive:
                    place.engine = self._load(key, place, progress)
            finally:
                place.lock.release()
            yield place.engine
        finally:
            with self._lock:
                place.users -= 1
                place.used = time.monotonic()
                if place.engine is None and not place.users and self._places.get(key) is place:
                    del self._places[key]

    def _seat(self, key: str) -> _Place:
        """The place of a pair, with one more user; another pair is unloaded where there is none."""
        from specviz.serving.offer import offered_pairs

        offered = offered_pairs()
        unloaded = None
        if key not in offered:
            raise PairError(f"There is no model pair of that name here: known are {', '.join(offered)}.")
        with self._lock:
            if self._closed:
                raise PairError("The server is being stopped.")
            if key not in self._places:
                if len(self._places) >= self.limits.pairs:
                    idle = [each for each in self._places.values() if not each.users]
                    if not idle:
                        titles = " and ".join(offered[each].title for each in self._places)
                        raise BusyError(
                            f"SpecViz is busy: no other model pair can be loaded while {titles} are in use. "
                            "Choose one of these, or try again later."
                        )
                    unloaded = min(idle, key=lambda each: each.used)
                    del self._places[unloaded.key]
                self._places[key] = _Place(key)
            place = self._places[key]
            place.users += 1
        if unloaded:
            self._unload(unloaded)
        return place

    def _load(self, key: str, place: _Place, progress: Progress | None) -> SharedEngine:
        def report(fraction: float, text: str) -> None:
            place.loading = (fraction, text)
            if progress:
                progress(fraction, text)

        report(0.0, "Loading the models")
        from specviz.models.pairs import load_pair
        from specviz.serving.offer import offered_pairs
        from specviz.serving.shared_engine import SharedEngine

        spec = offered_pairs()[key]
        try:
            pair = load_pair(spec, progress=report)
        except NoRoomError:
            if not self._make_room():
                raise
            pair = load_pair(spec, progress=report)
        limits = self.limits
        tally = self._tallies.setdefault(key, PairTally(key, limits.rows))
        tally.loaded = True
        engine = SharedEngine(
            pair, max_rows=limits.rows, queue=limits.queue, seconds=limits.seconds, tally=tally
        )
        try:
            engine.warm_up(report)
        except Exception as error:  # texts come without that, or tell themselves what is wrong
            told = {"pair": key, "error": type(error).__name__}
            log.warning("a pair was not made ready ahead", extra={"fields": told})
        return engine

    def _make_room(self) -> bool:
        """Unload every pair that nobody uses; whether there was any."""
        with self._lock:
            idle = [place for place in self._places.values() if not place.users]
            for place in idle:
                del self._places[place.key]
        for place in idle:
            self._unload(place)
        return bool(idle)

    def _unload(self, place: _Place) -> None:
        with place.lock:
            if place.engine:
                place.engine.close()
                place.engine.tally.loaded = False
                place.engine = None
        from specviz.models.pairs import release_memory

        release_memory()


@dataclass(eq=False)
class _Place:
    """Room in memory for one pair."""

    key: str
    engine: SharedEngine | None = None
    users: int = 0
    used: float = field(default_factory=time.monotonic)
    loading: tuple[float, str] = (0.0, "Waiting for the models")
    lock: threading.Lock = field(default_factory=threading.Lock)
