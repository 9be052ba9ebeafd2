"""One simulated visitor: thinks, asks, reads, loses patience, comes back. Knows clients; knows no protocol.

Every decision comes from the visitor's own seed.
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
from specviz.tools.loadtest.client import Client, Received
from specviz.tools.loadtest.scenario import Scenario

READ, CANCEL, CLOSE, KILL = "read", "cancel", "close", "kill"
"""Intents: read to the end; or, midway, press Stop, close the tab, lose the connection."""
FINISHED, LATE, CANCELLED, CLOSED = "finished", "out of time", "cancelled", "closed"
KILLED, REFUSED, FAILED, UNFINISHED = "killed", "refused", "failed", "unfinished"
OUTCOMES = (FINISHED, LATE, CANCELLED, CLOSED, KILLED, REFUSED, FAILED, UNFINISHED)
"""Outcomes; "out of time" is the server's time limit, "unfinished" means that the load test itself was stopped."""

PATIENCE_SECONDS = 900.0
"""Time limit for one text, after which the server counts as hung."""
_SHARE_BEFORE_FIRST_TOKEN = 0.25
"""Share of those who break off that do so before the first token."""
_COMPLETE = ("eos", "length", "context")


@dataclass
class Visit:
    """One request of one visitor and its outcome. Holds no text.

    Attributes:
        number: counts the requests from 1 on.
        user: the visitor's number.
        request: index among the distinct requests.
        intent: what the visitor means to do.
        asked: seconds from the beginning of the load to sending.
        outcome: one of `OUTCOMES`.
        why: the server's stop reason, its sentence, or the type of the exception.
        waited: seconds from sending until the text left the queue (on the page: and its prompt was prefilled), or None.
        first_token: seconds from sending to the first token, or None.
        seconds: from sending to the end.
        tokens: that were received.
        wrong: the text differs from the one written alone, or is no prefix of it where it was broken off.
    """

    number: int
    user: int
    request: int
    intent: str
    asked: float = 0.0
    outcome: str = UNFINISHED
    why: str = ""
    waited: float | None = None
    first_token: float | None = None
    seconds: float = 0.0
    tokens: int = 0
    wrong: bool = False


class Visitor:
    """A visitor; `connect` makes a client with a new session, `on_tokens` gets the number of new tokens."""

    def __init__(
        self,
        number: int,
        scenario: Scenario,
        requests: Sequence[Request],
        connect: Callable[[], Client],
        on_tokens: Callable[[int], None] = lambda count: None,
    ) -> None:
        self.number = number
        self._scenario, self._requests = scenario, requests
        self._connect, self._on_tokens = connect, on_tokens
        self._random = random.Random(f"{scenario.seed} {number}")
        self._client: Client | None = None
        self._begin, self._received = 0.0, Received()

    def think(self) -> float:
        """Seconds until the next request."""
        return self._random.expovariate(1 / self._scenario.think) if self._scenario.think else 0.0

    def choose(self, number: int) -> Visit:
        """The next request, and what to do with it."""
        scenario = self._scenario
        request = self._random.randrange(len(self._requests))
        shares = {CANCEL: scenario.cancel, CLOSE: scenario.close, KILL: scenario.kill}
        shares[READ] = 1 - sum(shares.values())
        (intent,) = self._random.choices(list(shares), list(shares.values()))
        return Visit(number, self.number, request, intent)

    async def visit(self, visit: Visit, expected: Received | None) -> Received:
        """Carry out a visit and fill in its outcome; returns what was received.

        `expected` is what was received alone, None before it is known.
        """
        self._begin, self._received = time.perf_counter(), Received()
        try:
            await asyncio.wait_for(self._read(visit, self._patience(visit, expected)), PATIENCE_SECONDS)
        except Exception as error:
            visit.outcome = REFUSED if isinstance(error, BusyError) else FAILED
            visit.why = str(error) if isinstance(error, SpecvizError) else type(error).__name__
            if isinstance(error, asyncio.TimeoutError):
                visit.why = f"no end after {PATIENCE_SECONDS:g} seconds"
            if not isinstance(error, SpecvizError):  # after a sentence of the server the page is still usable
                await self.leave()
        except asyncio.CancelledError:
            await self.leave()
            raise
        finally:
            visit.seconds = time.perf_counter() - self._begin
        if expected:
            text, is_whole = self._received.text, visit.outcome == FINISHED
            visit.wrong = text != expected.text if is_whole else not expected.text.startswith(text)
        return self._received

    async def leave(self, *, abruptly: bool = False) -> None:
        """Close the client, if there is one."""
        client, self._client = self._client, None
        if client:
            await client.close(abruptly=abruptly)

    def _patience(self, visit: Visit, expected: Received | None) -> int | None:
        """Tokens after which the visitor breaks off, 0 for at once; None reads to the end."""
        if visit.intent == READ or expected is None:
            return None
        if self._random.random() < _SHARE_BEFORE_FIRST_TOKEN:
            return 0
        return 1 + self._random.randrange(max(1, expected.tokens - 1))

    async def _read(self, visit: Visit, patience: int | None) -> None:
        """Ask, and read until the text ends or the visitor breaks off."""
        if self._client is None:
            self._client = self._connect()
            await self._client.open()
            self._begin = time.perf_counter()  # opening the page does not count
        client = self._client
        async with aclosing(client.ask(self._requests[visit.request])) as stream:
            async for self._received in stream:
                self._measure(visit)
                if patience is None or self._received.tokens < patience or self._received.stop_reason:
                    continue
                patience = None
                if visit.intent == CANCEL:
                    await client.stop()
                    continue
                visit.outcome = KILLED if visit.intent == KILL else CLOSED
                await self.leave(abruptly=visit.intent == KILL)  # while the stream is still open
                return
        visit.why = self._received.stop_reason
        if visit.why in _COMPLETE:
            visit.outcome = FINISHED
        elif visit.why == "time":
            visit.outcome = LATE
        elif visit.why == "cancelled" and visit.intent == CANCEL:
            visit.outcome = CANCELLED
        else:
            raise EngineError(f"The text ended as {visit.why!r}, which nobody asked for.")

    def _measure(self, visit: Visit) -> None:
        now, received = time.perf_counter() - self._begin, self._received
        if received.started and visit.waited is None:
            visit.waited = now
        if received.tokens and visit.first_token is None:
            visit.first_token = now
        if received.tokens > visit.tokens:
            self._on_tokens(received.tokens - visit.tokens)
            visit.tokens = received.tokens
