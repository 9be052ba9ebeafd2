"""One simulated visitor: thinks, asks, reads, loses patience, comes back. Knows tabs; knows no protocol.

Everything it decides comes from its own seed.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from specviz.errors import BusyError, EngineError, SpecvizError
from specviz.schema.settings import Request
from specviz.tools.loadtest import visit as outcomes
from specviz.tools.loadtest.plan import Plan
from specviz.tools.loadtest.tab import Seen, Tab
from specviz.tools.loadtest.visit import Visit

PATIENCE_SECONDS = 900.0
"""For one text, after which the server counts as hung."""
_AT_ONCE = 0.25
"""The share of those who lose patience that do so before there is a token."""
_WHOLE = ("eos", "length", "context")


@dataclass(frozen=True)
class Text:
    """A text as it was written alone."""

    text: str
    tokens: int


class Visitor:
    """A visitor; `opened` makes a new tab, with a session of its own."""

    def __init__(
        self, number: int, plan: Plan, requests: Sequence[Request], opened: Callable[[], Tab]
    ) -> None:
        self.number = number
        self._plan, self._requests, self._opened = plan, requests, opened
        self._random = random.Random(f"{plan.seed} {number}")
        self._tab: Tab | None = None
        self._begin, self._seen = 0.0, Seen()

    def think(self) -> float:
        """Seconds until the next request."""
        return self._random.expovariate(1 / self._plan.think) if self._plan.think else 0.0

    def choose(self, number: int) -> Visit:
        """What to ask for next, and what to do then."""
        plan = self._plan
        at = self._random.randrange(len(self._requests))
        shares = {outcomes.CANCEL: plan.cancel, outcomes.CLOSE: plan.close, outcomes.KILL: plan.kill}
        shares[outcomes.READ] = 1 - sum(shares.values())
        (intent,) = self._random.choices(list(shares), list(shares.values()))
        return Visit(number, self.number, at, intent)

    async def visit(
        self, visit: Visit, alone: Text | None, arrived: Callable[[int], None] = lambda tokens: None
    ) -> str:
        """Carry out what was chosen and note what came of it; returns the text that was seen.

        `alone` is what must come out, None if that is not known yet; `arrived` is told of tokens as they come.
        """
        self._begin, self._seen = time.perf_counter(), Seen()
        try:
            reading = self._read(visit, self._patience(visit, alone), arrived)
            await asyncio.wait_for(reading, PATIENCE_SECONDS)
            self._conclude(visit)
        except Exception as error:
            visit.outcome = outcomes.REFUSED if isinstance(error, BusyError) else outcomes.FAILED
            visit.why = _in_words(error)
            if not isinstance(error, SpecvizError):  # whoever reads a sentence still has the page before them
                await self.leave()
        except asyncio.CancelledError:
            await self.leave()
            raise
        finally:
            visit.seconds = time.perf_counter() - self._begin
        text = self._seen.text
        if alone:
            whole = visit.outcome == outcomes.FINISHED
            visit.wrong = text != alone.text if whole else not alone.text.startswith(text)
        return text

    async def leave(self, *, abruptly: bool = False) -> None:
        """Close the tab, if one is open."""
        tab, self._tab = self._tab, None
        if tab:
            await tab.leave(abruptly=abruptly)

    def _patience(self, visit: Visit, alone: Text | None) -> int | None:
        """Tokens after which a visitor breaks off, 0 is at once; None reads to the end."""
        if visit.intent == outcomes.READ or alone is None:
            return None
        if self._random.random() < _AT_ONCE:
            return 0
        return 1 + self._random.randrange(max(1, alone.tokens - 1))

    async def _read(self, visit: Visit, patience: int | None, arrived: Callable[[int], None]) -> None:
        if self._tab is None:
            self._tab = self._opened()
            await self._tab.open()
            self._begin = time.perf_counter()  # opening the page is no part of asking
        tab = self._tab
        async with aclosing(tab.ask(self._requests[visit.request])) as stream:
            async for self._seen in stream:
                self._note(visit, arrived)
                if patience is None or self._seen.tokens < patience or self._seen.stop_reason:
                    continue
                patience = None
                if visit.intent == outcomes.CANCEL:
                    await tab.stop()
                    continue
                visit.outcome = outcomes.KILLED if visit.intent == outcomes.KILL else outcomes.CLOSED
                await self.leave(abruptly=visit.intent == outcomes.KILL)  # while the stream is still open
                return

    def _note(self, visit: Visit, arrived: Callable[[int], None]) -> None:
        now, seen = time.perf_counter() - self._begin, self._seen
        if seen.started and visit.waited is None:
            visit.waited = now
        if seen.tokens and visit.first_token is None:
            visit.first_token = now
        if seen.tokens > visit.tokens:
            arrived(seen.tokens - visit.tokens)
            visit.tokens = seen.tokens

    def _conclude(self, visit: Visit) -> None:
        if visit.outcome in (outcomes.KILLED, outcomes.CLOSED):
            return
        visit.why = self._seen.stop_reason
        if visit.why in _WHOLE:
            visit.outcome = outcomes.FINISHED
        elif visit.why == "time":
            visit.outcome = outcomes.LATE
        elif visit.why == "cancelled" and visit.intent == outcomes.CANCEL:
            visit.outcome = outcomes.CANCELLED
        else:
            raise EngineError(f"The text ended as {visit.why!r}, which nobody asked for.")


def _in_words(error: Exception) -> str:
    if isinstance(error, asyncio.TimeoutError):
        return f"no end after {PATIENCE_SECONDS:g} seconds"
    if isinstance(error, SpecvizError):
        return str(error)
    return type(error).__name__  # of a connection that failed, or of an answer that makes no sense
