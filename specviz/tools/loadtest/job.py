"""The load test itself: every request alone, then many visitors at once, then perhaps alone again.

Knows visitors and their tabs; lays out no report.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from specviz.errors import RequestError, SpecvizError
from specviz.progress import Progress
from specviz.tools.loadtest.api_tab import ApiTab
from specviz.tools.loadtest.catalogue import catalogue
from specviz.tools.loadtest.footprint import Footprint, footprint
from specviz.tools.loadtest.page_tab import PageTab
from specviz.tools.loadtest.plan import Plan
from specviz.tools.loadtest.site import Site
from specviz.tools.loadtest.tab import Tab
from specviz.tools.loadtest.visit import FAILED, FINISHED, READ, UNFINISHED, Visit
from specviz.tools.loadtest.visitor import Text, Visitor

if TYPE_CHECKING:
    import httpx

EARLY = 50
"""The server's memory is looked at again after so many requests."""
SETTLE = 5.0
"""Seconds in which a server without work comes to rest, and gives memory back."""
_POLL_SECONDS = 0.1
_SILENCE_SECONDS = 60.0
"""A server that streams says something every 15 seconds, if only that it is there."""


@dataclass
class Measured:
    """Everything that a load test found out.

    Attributes:
        alone: the requests asked one after another, before the load.
        again: the same after it, if asked for.
        visits: the load, in the order of asking.
        seconds: from the beginning of the load until no more was asked.
        last: from the beginning of the load to the end of its last text.
        tokens: that arrived within `seconds`.
        footprints: of the server, by when it was looked at.
        own_processor_seconds, server_processor_seconds: spent within `last`; the server's only where its process is
            known.
        complete: nobody broke the load test off.
    """

    plan: Plan
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
        return any(
            visit.outcome == FAILED or visit.wrong for visit in (*self.alone, *self.visits, *self.again)
        )


class Job:
    """One load test."""

    def __init__(self, plan: Plan, progress: Progress, stop: threading.Event) -> None:
        self._plan, self._progress, self._stop = plan, progress, stop
        self._open, self._rested = asyncio.Event(), 0.0
        self._open.set()
        self._requests = catalogue(plan.distinct, plan.seed)
        self._texts: list[Text] = []
        self._begin = self._end = 0.0
        self._done = self._asked = 0
        self.measured = Measured(plan)

    def run(self) -> Measured:
        """Do it all; a set `stop` ends it early, and what was measured is kept.

        Raises:
            RequestError: there is no process of that number.
            SpecvizError: there is no such server, or it could not serve a request that was asked alone.
        """
        asyncio.run(self._until_stopped())
        return self.measured

    async def _until_stopped(self) -> None:
        work = asyncio.ensure_future(self._everything())
        while not work.done():
            if self._stop.is_set():
                work.cancel()
            await asyncio.wait({work}, timeout=_POLL_SECONDS)
        with suppress(asyncio.CancelledError):
            work.result()
            self.measured.complete = True

    async def _everything(self) -> None:
        import httpx

        self._look("before")  # a wrong number is told at once
        endless = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        silence = httpx.Timeout(_SILENCE_SECONDS)
        address = self._plan.address.rstrip("/")
        # No proxy of the environment: the server is measured, not the way to it.
        async with httpx.AsyncClient(
            base_url=address, limits=endless, timeout=silence, trust_env=False
        ) as client:
            opened = await self._tabs(client)
            await self._alone(opened, self.measured.alone)
            await self._load(opened)
            if self._plan.again:
                await self._alone(opened, self.measured.again)
        self._progress(1.0, "Done")

    async def _tabs(self, client: httpx.AsyncClient) -> Callable[[], Tab]:
        kind = PageTab if self._plan.through == "page" else ApiTab
        site = await Site.read(client)
        return lambda: kind(client, site, self._plan.pair)

    async def _alone(self, opened: Callable[[], Tab], visits: list[Visit]) -> None:
        """Ask everything once, with nobody else there; the first time this says what the texts are."""
        visitor = Visitor(0, self._plan, self._requests, opened)
        first = not self._texts
        doing = "One visitor alone" if first else "One visitor alone again"
        try:
            for at in range(len(self._requests)):
                self._progress(at / len(self._requests), f"{doing}: request {at + 1}")
                visit = Visit(at + 1, 0, at, READ)
                text = await visitor.visit(visit, None if first else self._texts[at])
                visits.append(visit)
                if first and visit.outcome != FINISHED:
                    raise SpecvizError(
                        f"Asked alone, request {at} was not served to its end ({visit.outcome}: {visit.why}): nothing "
                        "could be compared with it."
                    )
                if first:
                    self._texts.append(Text(text, visit.tokens))
        finally:
            await visitor.leave()

    async def _load(self, opened: Callable[[], Tab]) -> None:
        plan, measured = self._plan, self.measured
        own, server = footprint(), self._look("at the start")
        self._begin = time.perf_counter()
        self._end = self._begin + plan.seconds if plan.seconds else float("inf")
        everybody = (Visitor(number, plan, self._requests, opened) for number in range(1, plan.users + 1))
        try:
            await _together([self._live(visitor) for visitor in everybody])
        finally:
            measured.last = time.perf_counter() - self._begin
            measured.seconds = min(measured.last, self._end - self._begin)
            measured.seconds -= self._rested
            measured.own_processor_seconds = footprint().processor_seconds - own.processor_seconds
            if server:
                await asyncio.sleep(SETTLE)
            after = self._look("at rest at the end")
            if server and after:
                measured.server_processor_seconds = after.processor_seconds - server.processor_seconds

    async def _live(self, visitor: Visitor) -> None:
        """What one visitor does until the load is over."""
        try:
            while True:
                left = self._end - time.perf_counter()
                await asyncio.sleep(max(0.0, min(visitor.think(), left)))
                await self._open.wait()
                if time.perf_counter() >= self._end or self._asked == self._plan.requests:
                    return
                self._asked += 1
                visit = visitor.choose(self._asked)
                visit.asked = time.perf_counter() - self._begin
                self.measured.visits.append(visit)
                await visitor.visit(visit, self._texts[visit.request], self._arrived)
                self._done += 1
                if self._done == EARLY and self._plan.pid is not None:
                    await self._rest()
                self._tell()
        finally:
            await visitor.leave()

    async def _rest(self) -> None:
        """Let everybody come to an end and look at the server at rest, as at the end; the clock stands still meanwhile."""
        self._open.clear()
        while self._done < self._asked:
            await asyncio.sleep(0.1)
        begin = time.perf_counter()
        await asyncio.sleep(SETTLE)
        self._look(f"at rest after {self._done} requests")
        rested = time.perf_counter() - begin
        self._rested += rested
        self._end += rested
        self._open.set()

    def _arrived(self, tokens: int) -> None:
        if time.perf_counter() <= self._end:
            self.measured.tokens += tokens

    def _tell(self) -> None:
        plan, now = self._plan, time.perf_counter() - self._begin
        shares = [
            now / plan.seconds if plan.seconds else 0,
            self._done / plan.requests if plan.requests else 0,
        ]
        wrong = sum(visit.wrong for visit in self.measured.visits)
        failed = sum(visit.outcome == FAILED for visit in self.measured.visits)
        under_way = sum(visit.outcome == UNFINISHED for visit in self.measured.visits)
        told = f"Load: {self._done} done, {under_way} under way, {failed} failed, {wrong} wrong"
        self._progress(min(0.99, max(shares)), told)

    def _look(self, when: str) -> Footprint | None:
        if self._plan.pid is None:
            return None
        try:
            found = footprint(self._plan.pid)
        except RequestError:
            if not self.measured.footprints:
                raise
            return None
        self.measured.footprints[when] = found
        return found


async def _together(work: list[Coroutine[Any, Any, None]]) -> None:
    """Let all run; if one fails, or this is cancelled, the others are ended before that is told."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
