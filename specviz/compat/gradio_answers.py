"""Bounds on the answers that wait to be fetched: their number, age and bytes.

Gradio 6.31 stores the messages of an event until a client reads them, and lets a run without a reader go on to its end. Once 2000 more
visitors have come, gradio ends the streams of the earliest. No option changes that. Here an event beyond `MOST_EVENTS` is refused
instead, and a session is dropped only while nobody reads its messages: after a minute, or if all unread messages take too many bytes.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

from gradio.server_messages import EventMessage, ProcessCompletedMessage

MOST_EVENTS = 1500
"""Maximum number of events that run, wait or are unread, over all clients."""
UNREAD_SECONDS = 60.0
"""Seconds without a reader after which a session's messages are dropped and its events end."""
UNREAD_BYTES = 64_000_000
"""Maximum bytes of unread messages. Beyond this, the session that has been unread for longest is dropped."""
FULL = "This server holds as many unread answers as it can: try again in a moment."
FULL_FOR_ADDRESS = "Your network has {} calls under way or unread, as many as one address may have: read their answers first."
_MESSAGE_BYTES = 1000
"""Bytes of an empty box, or of a message without its output."""


class Answers(dict[str, Any]):
    """The unread messages of each session.

    Replaces a gradio queue's `pending_messages_per_session`: a `_Box` is stored in place of whatever gradio assigns. All calls come
    from the server's event loop.
    """

    def __init__(
        self,
        queue: Any,
        most_of_address: int = MOST_EVENTS,
        address_of: Callable[[Any], str] = lambda client: "",
    ) -> None:
        """Hold the messages of `queue` for at most `most_of_address` events per address; `address_of` returns the address of a client."""
        super().__init__()
        self._queue, self._most_of_address, self._address_of = queue, most_of_address, address_of
        self._push, queue.push = queue.push, self.push
        self._timer: asyncio.TimerHandle | None = None
        self.bytes = 0
        queue.pending_messages_per_session = self
        queue.pending_event_ids_session = _EventIds(queue.pending_event_ids_session)

    async def push(self, body: Any, request: Any, username: str | None) -> Any:
        """Queue an event as gradio does; if there are too many, answer as if the queue were full."""
        held, address = self._queue.pending_event_ids_session, self._address_of(request.client)
        if sum(map(len, held.values())) >= MOST_EVENTS:
            return False, FULL, "queue_full"
        its_own = sum(len(held[session]) for session, box in self.items() if box.address == address)
        if address and its_own >= self._most_of_address:
            return False, FULL_FOR_ADDRESS.format(self._most_of_address), "queue_full"
        answer = await self._push(body, request, username)
        if box := self.get(body.session_hash):
            box.address = box.address or address
        return answer

    def __missing__(self, session: str) -> asyncio.Queue[Any]:
        """A queue that is not stored. A message for a session that has just ended would otherwise stop gradio's queue for everybody."""
        return asyncio.Queue()

    def __setitem__(self, session: str, value: Any) -> None:
        super().__setitem__(session, _Box(self, session))
        self._grew(_MESSAGE_BYTES)

    def __delitem__(self, session: str) -> None:
        """Drop a session's messages and end its events; an unknown session is ignored."""
        box: _Box | None = self.get(session)
        if box is None:
            return
        super().__delitem__(session)
        self.bytes -= box.bytes
        for event_id in self._queue.pending_event_ids_session.pop(session, ()):
            if event := self._queue.event_ids_to_events.get(event_id):
                event.alive = False  # gradio ends it after its next message

    def events(self, session: str) -> list[str]:
        """Ids of the session's events whose end has not been read."""
        return list(self._queue.pending_event_ids_session.get(session, ()))

    def is_over(self, event_id: str) -> bool:
        """Whether an event has ended and will send no more messages."""
        return event_id not in self._queue.event_ids_to_events

    def _grew(self, size: int) -> None:
        self.bytes += size
        if self.bytes > UNREAD_BYTES:
            for session, box in sorted(self.items(), key=lambda each: each[1].read_at):
                if self.bytes > UNREAD_BYTES and not box.is_awaited:
                    del self[session]
        self._watch()

    def _watch(self) -> None:
        if self._timer is None and self:
            self._timer = asyncio.get_running_loop().call_later(UNREAD_SECONDS / 10, self._expire)

    def _expire(self) -> None:
        end, self._timer = asyncio.get_running_loop().time() - UNREAD_SECONDS, None
        for session, box in [*self.items()]:
            if box.read_at <= end and not box.is_awaited:
                del self[session]
        self._watch()


class _Box(asyncio.Queue[Any]):
    """The unread messages of one session."""

    def __init__(self, answers: Answers, session: str) -> None:
        super().__init__()
        self._answers, self._session = answers, session
        self.bytes = _MESSAGE_BYTES
        self.address = ""  # of the client that began the session
        self.is_awaited = False
        self.touch()

    async def get(self) -> Any:
        """The next message; waits until there is one. Gradio cancels the call after ten seconds and calls again."""
        if self.empty():
            # Gradio sends no end for an event that was cancelled by another one's id, or whose stream its reader left.
            for event_id in filter(self._answers.is_over, self._answers.events(self._session)):
                self.put_nowait(ProcessCompletedMessage(output={}, success=True, event_id=event_id))
        self.is_awaited = True
        try:
            return await super().get()
        finally:
            self.is_awaited = False
            self.touch()

    def touch(self) -> None:
        """Note that somebody reads this box."""
        self.read_at = asyncio.get_running_loop().time()

    def _is_kept(self) -> bool:
        return self._answers.get(self._session) is self

    def _put(self, item: EventMessage) -> None:
        if not self._is_kept():
            return
        size = _MESSAGE_BYTES + _memory(getattr(item, "output", None))
        super()._put((size, item))
        self.bytes += size
        self._answers._grew(size)

    def _get(self) -> Any:
        size, item = super()._get()
        self.bytes -= size
        if self._is_kept():
            self._answers.bytes -= size
        return item


class _EventIds(dict[str, set[str]]):
    """Ids of each session's events; empty for a dropped session, which gradio still looks up."""

    def __missing__(self, session: str) -> set[str]:
        return set()


def _memory(value: Any) -> int:
    """Approximate bytes of a message's output."""
    if isinstance(value, str):
        return sys.getsizeof(value)  # not its length: one character beyond Latin-1 makes all of them wider
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return 0
    return sum(50 + _memory(each) for each in value)
