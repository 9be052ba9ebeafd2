"""The load test: every request alone, then many visitors at once, then perhaps alone again.

Knows visitors and their clients; writes no report.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import httpx
import psutil

from specviz.errors import RequestError, SpecvizError
from specviz.progress import Progress
from specviz.tools.loadtest.client import ApiClient, Client, Received, ServerConfig
from specviz.tools.loadtest.page_client import PageClient
from specviz.tools.loadtest.scenario import Scenario, distinct_requests
from specviz.tools.loadtest.visitor import FAILED, FINISHED, READ, UNFINISHED, Visit, Visitor

EARLY = 50
"""The server's memory is looked at again, at rest, after so many requests."""
REST_SECONDS = 5.0
"""Time in which an idle server gives its memory back."""
_POLL_SECONDS = 0.1
_SILENCE_SECONDS = 60.0
"""Read timeout: a server that streams sends a heartbeat every 15 seconds."""


@dataclass(frozen=True)
class Footprint:
    """Of a process at one moment: resident memory in bytes, threads, and CPU seconds since it began."""

    memory: int
    threads: int
    processor_seconds: float


@dataclass
class Measurements:
    """Everything that a load test measured.

    Attributes:
        alone: the requests one after another, before the load.
        again: the same after it, if asked for.
        visits: the load, in the order of asking.
        seconds: from the beginning of the load until no new requests were sent.
        last: from the beginning of the load to the end of its last text.
        tokens: received within `seconds`.
        footprints: of the server, by when they were taken.
        own_processor_seconds, server_processor_seconds: CPU time within `last`; the server's only if its process is known.
        complete: it was not stopped early.
    """

    scenario: Scenario
    alone: list[Visit] = field(default_factory=list)
    again: list[Visit] = field(default_factory=list)
    visits: list[Visit] = field(default_factory=list)
    seconds: float = 0.0
    last: float = 0.0
    tokens: int = 0
    footprints: dict[str, Footprint] = field(default_factory=dict)
    own_processor_seconds: float = 0.0
    server_processor_seconds: float | None = None
    complete: bool = False

    @property
    def failed(self) -> bool:
        """Whether there was an error or a wrong text."""
        everything = (*self.alone, *self.visits, *self.again)
        return any(visit.outcome == FAILED or visit.wrong for visit in everything)


class LoadTest:
    """One load test."""

    def __init__(self, scenario: Scenario, progress: Progress, stop: threading.Event) -> None:
        self._scenario, self._progress, self._stop = scenario, progress, stop
        self._resumed, self._rested = asyncio.Event(), 0.0
        self._resumed.set()
        self._requests = distinct_requests(scenario.distinct, scenario.seed)
        self._texts: list[Received] = []
        self._begin = self._end = 0.0
        self._done = self._asked = 0
        self.measurements = Measurements(scenario)

    def run(self) -> Measurements:
        """Do it all; a set `stop` ends it early and keeps what was measured.

        Raises:
            RequestError: there is no process of that number.
            SpecvizError: there is no such server, or it could not serve a request alone.
        """
        asyncio.run(self._until_stopped())
        return self.measurements

    async def _until_stopped(self) -> None:
        work = asyncio.ensure_future(self._everything())
        while not work.done():
            if self._stop.is_set():
                work.cancel()
            await asyncio.wait({work}, timeout=_POLL_SECONDS)
        with suppress(asyncio.CancelledError):
            work.result()
            self.measurements.complete = True

    async def _everything(self) -> None:
        self._take_footprint("before")  # a wrong pid is an error at once
        # trust_env=False: no proxy, it is the server that is measured.
        async with httpx.AsyncClient(
            base_url=self._scenario.address.rstrip("/"),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
            timeout=httpx.Timeout(_SILENCE_SECONDS),
            trust_env=False,
        ) as http:
            kind = PageClient if self._scenario.through == "page" else ApiClient
            connect = partial(kind, http, await ServerConfig.fetch(http), self._scenario.pair)
            await self._ask_alone(connect, self.measurements.alone)
            await self._load(connect)
            if self._scenario.again:
                await self._ask_alone(connect, self.measurements.again)
        self._progress(1.0, "Done")

    async def _ask_alone(self, connect: Callable[[], Client], visits: list[Visit]) -> None:
        """Ask each request once, one after another; the first time, the answers become the expected texts."""
        visitor = Visitor(0, self._scenario, self._requests, connect)
        first = not self._texts
        stage = "One visitor alone" if first else "One visitor alone again"
        try:
            for index in range(len(self._requests)):
                self._progress(index / len(self._requests), f"{stage}: request {index + 1}")
                visit = Visit(index + 1, 0, index, READ)
                received = await visitor.visit(visit, None if first else self._texts[index])
                visits.append(visit)
                if first and visit.outcome != FINISHED:
                    raise SpecvizError(
                        f"Asked alone, request {index} was not served to its end ({visit.outcome}: {visit.why}): nothing "
                        "could be compared with it."
                    )
                if first:
                    self._texts.append(received)
        finally:
            await visitor.leave()

    async def _load(self, connect: Callable[[], Client]) -> None:
        scenario, measurements = self._scenario, self.measurements
        own, server = _footprint(), self._take_footprint("at the start")
        self._begin = time.perf_counter()
        self._end = self._begin + scenario.seconds if scenario.seconds else float("inf")
        visitors = [
            Visitor(number, scenario, self._requests, connect, self._count_tokens)
            for number in range(1, scenario.users + 1)
        ]
        try:
            # All come to their end, also when this is cancelled, before anything is raised.
            for error in await asyncio.gather(*map(self._live, visitors), return_exceptions=True):
                if error:
                    raise error
        finally:
            measurements.last = time.perf_counter() - self._begin
            measurements.seconds = min(measurements.last, self._end - self._begin) - self._rested
            measurements.own_processor_seconds = _footprint().processor_seconds - own.processor_seconds
            if server:
                await asyncio.sleep(REST_SECONDS)
            after = self._take_footprint("at rest at the end")
            if server and after:
                measurements.server_processor_seconds = after.processor_seconds - server.processor_seconds

    async def _live(self, visitor: Visitor) -> None:
        try:
            while True:
                left = self._end - time.perf_counter()
                await asyncio.sleep(max(0.0, min(visitor.think(), left)))
                if not self._resumed.is_set():
                    await self._resumed.wait()
                    continue  # who waited thinks again: all at the same moment are no visitors
                if time.perf_counter() >= self._end or self._asked == self._scenario.requests:
                    return
                self._asked += 1
                visit = visitor.choose(self._asked)
                visit.asked = time.perf_counter() - self._begin
                self.measurements.visits.append(visit)
                await visitor.visit(visit, self._texts[visit.request])
                self._done += 1
                if self._done == EARLY and self._scenario.pid is not None:
                    await self._rest()
                self._report_progress()
        finally:
            await visitor.leave()

    async def _rest(self) -> None:
        """Wait for all visits to end and look at the idle server, as at the end; the clock is paused meanwhile."""
        self._resumed.clear()
        while self._done < self._asked:
            await asyncio.sleep(_POLL_SECONDS)
        begin = time.perf_counter()
        await asyncio.sleep(REST_SECONDS)
        self._take_footprint(f"at rest after {self._done} requests")
        self._rested = time.perf_counter() - begin
        self._end += self._rested
        self._resumed.set()

    def _count_tokens(self, count: int) -> None:
        if time.perf_counter() <= self._end:
            self.measurements.tokens += count

    def _report_progress(self) -> None:
        scenario, visits = self._scenario, self.measurements.visits
        by_time = (time.perf_counter() - self._begin) / scenario.seconds if scenario.seconds else 0
        by_count = self._done / scenario.requests if scenario.requests else 0
        wrong = sum(visit.wrong for visit in visits)
        failed, under_way = (
            sum(visit.outcome == outcome for visit in visits) for outcome in (FAILED, UNFINISHED)
        )
        text = f"Load: {self._done} done, {under_way} under way, {failed} failed, {wrong} wrong"
        self._progress(min(0.99, max(by_time, by_count)), text)

    def _take_footprint(self, when: str) -> Footprint | None:
        if self._scenario.pid is None:
            return None
        try:
            self.measurements.footprints[when] = _footprint(self._scenario.pid)
        except (psutil.Error, ValueError) as error:
            if not self.measurements.footprints:
                raise RequestError(
                    f"No process {self._scenario.pid} can be looked at here: give the server's own number."
                ) from error
        return self.measurements.footprints.get(when)


def _footprint(pid: int | None = None) -> Footprint:
    process = psutil.Process(pid)
    times = process.cpu_times()
    return Footprint(process.memory_info().rss, process.num_threads(), times.user + times.system)
