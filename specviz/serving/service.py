"""Loads pairs on demand and serves all visitors' requests on them.

The page uses models and engines only through this module, which imports torch when the first pair is needed.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from specviz.errors import BusyError, NoRoomError, PairError, RequestError, SpecvizError
from specviz.models.registry import find_pair
from specviz.progress import Progress, silent
from specviz.schema.settings import Request
from specviz.serving import offer
from specviz.serving.inbox import answer
from specviz.serving.limits import NOBODY, Limits, Visitor, Visits
from specviz.serving.lines import side_by_side, table_line, together, trace_lines
from specviz.serving.statistics import EngineStatistics

if TYPE_CHECKING:
    from specviz.analysis.sweep.grid import SweepGrid
    from specviz.analysis.sweep.results import Results
    from specviz.engine.events import Event, Loading, Waiting
    from specviz.models.availability import PairStatus
    from specviz.serving.shared_engine import SharedEngine

_POLL_SECONDS = 0.2
_LOADING_SECONDS = 1.0
"""Seconds between two `Loading` events."""
_STATES_SECONDS = 15.0
"""Seconds for which `Service.states` is cached."""
_importing = threading.Lock()
"""Held during the first import of torch and transformers: two threads that import transformers at once can get an incomplete module.
Requests import other slow modules only after their pair is loaded.
"""

log = logging.getLogger(__name__)


class Service:
    """Holds up to `Limits.pairs` pairs in memory, each with an engine. To load another, it unloads the least recently used one."""

    scores = True
    """Whether the verifiers score compared texts."""

    def __init__(self, limits: Limits | None = None) -> None:
        """Serve within `limits`, by default those of the environment."""
        self.limits = limits or Limits.from_environment()
        self._entries: dict[str, _Entry] = {}
        self._statistics: dict[str, EngineStatistics] = {}
        self._visits = Visits(self.limits.per_visitor, self.limits.per_address)
        self._lock = threading.Lock()
        self._closed = False
        self._failed: set[str] = set()
        """Keys of pairs whose last loading failed."""
        self._asking = threading.Lock()
        self._states: list[PairStatus] = []
        self._asked = -math.inf

    # ---- state -----------------------------------------------------------------------------------------------

    @property
    def healthy(self) -> bool:
        """Whether requests can be served: not closed, all engines alive, and a pair is loaded or the default pair did not fail to load."""
        engines = [entry.engine for entry in list(self._entries.values())]
        loads = offer.default_pair() not in self._failed or any(map(self.has_loaded, offer.offered_pairs()))
        return not self._closed and loads and all(engine.is_alive for engine in engines if engine)

    def status(self) -> list[EngineStatistics]:
        """Copies of the statistics of all pairs that were ever loaded."""
        return [deepcopy(each) for each in list(self._statistics.values())]

    def has_loaded(self, key: str) -> bool:
        """Whether a pair's models are in memory and its engine runs."""
        entry = self._entries.get(key)
        return entry is not None and entry.engine is not None and entry.engine.is_alive

    def states(self) -> list[PairStatus]:
        """The status of each offered pair, at most `_STATES_SECONDS` old. May query the hub and the hardware, which takes seconds."""
        with self._asking:
            if time.monotonic() >= self._asked + _STATES_SECONDS:
                with _importing:  # torch, by way of `placement`
                    from specviz.models import placement as placement
                    from specviz.models.availability import describe_pairs
                offered = offer.offered_pairs()
                held = [offered[key] for key in list(self._entries) if self.has_loaded(key)]
                self._states, self._asked = describe_pairs(offered.values(), held), time.monotonic()
            return self._states

    def obstacles(self) -> dict[str, str]:
        """Why pairs cannot be loaded now, in a few words, by key. As slow as `states`."""
        return self._obstacles(self.states())

    def _obstacles(self, states: Sequence[PairStatus]) -> dict[str, str]:
        found = offer.missing_pairs() | {each.spec.key: each.note for each in states if not each.usable}
        return {key: words for key, words in found.items() if not self.has_loaded(key)}

    def check_pair(self, key: str) -> None:
        """Raises PairError if a pair is known not to be loadable now. Queries the obstacles again only if the pair had one before."""
        if key in self._obstacles(self._states) and (words := self.obstacles().get(key)):
            raise PairError(
                f"{find_pair(offer.offered_pairs().get(key, key)).title} is not available now: {words}."
            )

    # ---- requests --------------------------------------------------------------------------------------------

    def events(
        self,
        key: str,
        requests: Sequence[Request],
        stop: threading.Event,
        progress: Progress | None = None,
        *,
        visitor: Visitor = NOBODY,
    ) -> Iterator[Event | Waiting]:
        """Serve requests of one visitor as one group. Loads the pair if needed.

        Args:
            key: key of the pair.
            requests: texts to write side by side.
            stop: once set, ends the texts before the next round.
            progress: called while the pair is loaded. Without it, `Loading` events report the progress.
            visitor: the sender, for the limits per visitor and address. By default these limits do not apply.

        Yields:
            Events as they happen, `Waiting` among them. Closing the iterator ends all runs.

        Raises:
            RequestError, BusyError, PairError, EngineError: a limit was exceeded, or loading or writing failed.
        """
        with self._visit(visitor, requests):
            if progress is None:
                yield from self._loading(key)
            with self.engine(key, progress or silent) as engine:
                yield from engine.stream(requests, stop=stop, visitor=visitor.session)

    def lines(
        self,
        key: str,
        request: Request,
        stop: threading.Event,
        progress: Progress | None = None,
        *,
        visitor: Visitor = NOBODY,
    ) -> Iterator[str]:
        """Serve one request; yields lines of `specviz.serving.lines`. Arguments and errors as for `events`."""
        events = self.events(key, [request], stop, progress, visitor=visitor)
        yield from (line for _, line in trace_lines(events, {}))

    def compare_lines(
        self,
        keys: Sequence[str],
        requests: Sequence[Request],
        stop: threading.Event,
        progress: Progress = silent,
        *,
        visitor: Visitor = NOBODY,
    ) -> Iterator[str]:
        """Serve each request on the pair of its key, side by side; then compare the runs and let the verifiers score them.

        Yields lines of `specviz.serving.lines`. Requests of one pair share a batch. Other arguments and errors as for `events`.
        """
        if len(requests) > self.limits.max_panes:
            raise RequestError(
                f"{len(requests)} texts were asked for side by side; at most {self.limits.max_panes} are allowed."
            )
        with self._visit(visitor, requests), ExitStack() as stack:
            engines = {key: stack.enter_context(self.engine(key, progress)) for key in dict.fromkeys(keys)}
            from specviz.analysis.quality import mean_log_probability  # here: see `_importing`

            def stream(key: str, some: list[Request]) -> Iterator[Event | Waiting]:
                return engines[key].stream(some, stop=stop, visitor=visitor.session)

            runs = yield from side_by_side(together(keys, requests, stream), len(requests))
            if self.scores and not stop.is_set():
                quality = []
                for key, run in zip(keys, runs, strict=True):
                    pair, call = engines[key].pair, engines[key].call
                    quality.append(mean_log_probability(pair, run.prompt_ids, run.token_ids, call))
                yield table_line(runs, quality)

    def sweep(
        self,
        key: str,
        plan: SweepGrid,
        stop: threading.Event,
        progress: Progress = silent,
        *,
        visitor: Visitor = NOBODY,
    ) -> Iterator[Results]:
        """Run a small sweep; yields the results so far after each item at each temperature. Arguments and errors as for `events`."""
        with self._visit(visitor, ()), self.engine(key, progress) as engine:
            from specviz.analysis.sweep.estimates import estimated  # here: see `_importing`
            from specviz.analysis.sweep.items import load_items
            from specviz.analysis.sweep.sweep import Sweep

            job = Sweep(plan, load_items(plan.prompts, plan.limit), engine)
            samples = []
            for count, unit in enumerate(job.units, 1):
                found = job.samples(unit, stop)
                if found is None:
                    return
                samples += found
                progress(count / len(job.units), f"Item {unit.item + 1} of {len(job.items.items)}")
                yield estimated(job.header, list(samples))

    @contextmanager
    def _visit(self, visitor: Visitor, requests: Sequence[Request]) -> Iterator[None]:
        """Check requests against the limits, and count them as a run of the visitor while the context is open."""
        for request in requests:
            self.limits.check(request)
        with self._visits.run(visitor, max(1, len(requests))):
            yield

    # ---- pairs -----------------------------------------------------------------------------------------------

    def warm_up(self, key: str, progress: Progress = silent) -> Future[None]:
        """Load a pair in the background. If that fails, the first request raises the error."""

        def report(loading: Future[None]) -> None:
            error = loading.exception()
            if isinstance(error, SpecvizError) and not self._closed:
                progress(0.0, str(error))

        loading = self._load_in_background(key, progress)
        loading.add_done_callback(report)
        return loading

    def _loading(self, key: str) -> Iterator[Loading]:
        """Load a pair in the background. Yields about once a second until it is in memory; raises what `engine` raises."""
        if self.has_loaded(key):
            return
        from specviz.engine.events import Loading  # here: see `_importing`

        texts = [_Entry(key).loading[1]]
        loading = self._load_in_background(key, lambda _, text: texts.append(text))
        while not loading.done():
            yield Loading(0, 0, texts[-1])
            wait([loading], timeout=_LOADING_SECONDS)
        loading.result()

    def _load_in_background(self, key: str, progress: Progress) -> Future[None]:
        def load() -> None:
            with self.engine(key, progress):
                pass

        loading: Future[None] = Future()
        # A daemon: it ends with the process.
        threading.Thread(target=answer, args=(loading, load), name="specviz-load", daemon=True).start()
        return loading

    @contextmanager
    def engine(self, key: str, progress: Progress = silent) -> Iterator[SharedEngine]:
        """Load a pair if needed. Yields its engine; the pair stays loaded until the context ends. Other pairs serve meanwhile.

        Raises:
            PairError: the pair cannot be loaded. The next call tries again.
            BusyError: all pairs that fit in memory are in use.
        """
        entry = self._enter(key)
        try:
            while not entry.lock.acquire(timeout=_POLL_SECONDS):
                progress(*entry.loading)
            try:
                if entry.engine is None or not entry.engine.is_alive:
                    try:
                        entry.engine = self._load(key, entry, progress)
                    except Exception:
                        self._failed.add(key)
                        raise
                    self._failed.discard(key)
            finally:
                entry.lock.release()
            yield entry.engine
        finally:
            with self._lock:
                entry.users -= 1
                entry.used = time.monotonic()
                if entry.engine is None and not entry.users and self._entries.get(key) is entry:
                    del self._entries[key]

    def _enter(self, key: str) -> _Entry:
        """Add a user to a pair's entry. If there would be too many pairs in memory, unloads the least recently used one."""
        offered = offer.offered_pairs()
        unloaded = []
        if words := offer.missing_pairs().get(key):
            raise PairError(f"{find_pair(key).title} is not available here: {words}.")
        if key not in offered:
            raise PairError(f"There is no model pair of that name here: known are {', '.join(offered)}.")
        with self._lock:
            if self._closed:
                raise PairError("The server is being stopped.")
            if key not in self._entries and len(self._entries) >= self.limits.pairs:
                idle = self._idle()
                if not idle:
                    titles = " and ".join(offered[each].title for each in self._entries)
                    raise BusyError(
                        f"SpecViz is busy: no other model pair can be loaded while {titles} are in use. "
                        "Choose one of these, or try again later."
                    )
                unloaded = [self._entries.pop(min(idle, key=lambda each: each.used).key)]
            entry = self._entries.setdefault(key, _Entry(key))
            entry.users += 1
        self._unload(unloaded)
        return entry

    def _load(self, key: str, entry: _Entry, progress: Progress) -> SharedEngine:
        def report(fraction: float, text: str) -> None:
            entry.loading = (fraction, text)
            progress(fraction, text)

        report(0.0, "Loading the models")
        spec = offer.offered_pairs()[key]
        with _importing:
            from specviz.models.loading import load_pair
            from specviz.serving.shared_engine import SharedEngine

        try:
            pair = load_pair(spec, progress=report)
        except NoRoomError:
            with self._lock:
                idle = [self._entries.pop(each.key) for each in self._idle()]
            if not idle:
                raise
            self._unload(idle)
            pair = load_pair(spec, progress=report)
        limits = self.limits
        statistics = self._statistics.setdefault(key, EngineStatistics(key, limits.max_sequences))
        statistics.loaded = True
        engine = SharedEngine(
            pair,
            max_sequences=limits.max_sequences,
            queue=limits.queue,
            seconds=limits.seconds,
            statistics=statistics,
            check_tokens=limits.check_tokens,
        )
        try:
            engine.warm_up()
        except Exception as error:  # a request is served nevertheless, or raises the error itself
            # only its type is logged: the error would hold memory
            fields = {"pair": key, "failure": type(error).__name__}
            log.warning("warm-up failed", extra={"fields": fields})
        return engine

    def _idle(self) -> list[_Entry]:
        """Entries without users. Call with `_lock` held."""
        return [entry for entry in self._entries.values() if not entry.users]

    def _unload(self, entries: Sequence[_Entry]) -> None:
        for entry in entries:
            with entry.lock:
                if entry.engine:
                    entry.engine.close()
                    entry.engine.statistics.loaded = False
                    entry.engine = None
        if entries:
            from specviz.models.loading import release_memory  # slow to import

            release_memory()

    def close(self) -> None:
        """End all runs and all engines, and free the models."""
        with self._lock:
            self._closed = True
            entries, self._entries = list(self._entries.values()), {}
        self._unload(entries)


@dataclass(eq=False)
class _Entry:
    """A pair that is in memory or being loaded."""

    key: str
    engine: SharedEngine | None = None
    users: int = 0
    used: float = field(default_factory=time.monotonic)
    loading: tuple[float, str] = (0.0, "Waiting for the models")
    lock: threading.Lock = field(default_factory=threading.Lock)
