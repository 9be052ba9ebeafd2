"""A bound on the answers that gradio's queue holds for clients (6.31). Without it, everybody can end everybody's streams.

Gradio keeps the messages of the last 2,000 sessions that sent an event, first in, first out, and no option changes that: whoever sends
2,000 small events, each under a new session, ends all older streams. Here an event beyond the bound is refused instead, and a session
goes only when its answers were delivered, or nobody has fetched them for a while.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

MOST_EVENTS = 1500
"""Most events of all clients that run, wait or are unread. Below gradio's 2,000 sessions, so that it never drops one itself."""
UNREAD_SECONDS = 120.0
"""Seconds after its last event ended for which a session's unread answers are kept."""
FULL = "This server holds as many unread answers as it can: try again in a moment."
FULL_FOR_ADDRESS = "Your network has {} calls under way or unread, as many as one address may have: read their answers first."


class HeldEvents:
    """The events of each session that run, wait, or whose answers are unread, and the address that began the session."""

    def __init__(
        self,
        queue: Any,
        most_of_address: int,
        address_of: Callable[[Any], str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Bound `queue`, a gradio queue; `address_of` tells the address of a request's client."""
        self._queue, self._most_of_address = queue, most_of_address
        self._address_of, self._clock = address_of, clock
        self._push = queue.push
        self._address: dict[str, str] = {}
        self._idle_since: dict[str, float] = {}
        queue.push = self.push

    async def push(self, body: Any, request: Any, username: str | None) -> Any:
        """Put an event into the queue as gradio does, unless there are too many: then as if the queue were full."""
        self._drop()
        address = self._address_of(request.client)
        count: Counter[str] = Counter()
        for session, begun_by in self._address.items():
            count[begun_by] += max(1, len(self._queue.pending_event_ids_session.get(session, ())))
        if count.total() >= MOST_EVENTS:
            return False, FULL, "queue_full"
        if address and count[address] >= self._most_of_address:
            return False, FULL_FOR_ADDRESS.format(self._most_of_address), "queue_full"
        answer = await self._push(body, request, username)
        if body.session_hash in self._queue.pending_messages_per_session:
            self._address.setdefault(body.session_hash, address)
        return answer

    def _drop(self) -> None:
        """Let sessions go that have nothing to read, or that nobody reads."""
        queue, now = self._queue, self._clock()
        for session in list(self._address):
            unread = queue.pending_event_ids_session.get(session, set())
            if not unread.isdisjoint(queue.event_ids_to_events):
                self._idle_since.pop(session, None)
            elif not unread or now - self._idle_since.setdefault(session, now) > UNREAD_SECONDS:
                for kept in (
                    self._address,
                    self._idle_since,
                    queue.pending_event_ids_session,
                    queue.pending_messages_per_session,
                ):
                    kept.pop(session, None)
