"""What is held of events for those who do not read: bounded, and never at the cost of others."""

from __future__ import annotations

import asyncio
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from gradio.server_messages import ProcessCompletedMessage

from specviz.compat import gradio_answers
from specviz.compat.gradio_answers import Answers


class Queue:
    """As gradio's: what it holds of sessions and events, and how an event comes in. Holds two of an address, and three in all."""

    def __init__(self) -> None:
        self.pending_messages_per_session: Any = {}
        self.pending_event_ids_session: dict[str, set[str]] = {}
        self.event_ids_to_events: dict[str, Any] = {}
        Answers(self, 2, lambda client: client)

    async def push(self, body: Any, request: Any, username: str | None) -> Any:
        session, event = body.session_hash, f"{body.session_hash} {len(self.event_ids_to_events)}"
        if session not in self.pending_messages_per_session:
            self.pending_messages_per_session[session] = None
        self.pending_event_ids_session.setdefault(session, set()).add(event)
        self.event_ids_to_events[event] = SimpleNamespace(alive=True)
        return True, event, "success"

    async def take(self, session: str, address: str) -> str:
        """The id of an event that is pushed; "" if it is refused."""
        body, request = SimpleNamespace(session_hash=session), SimpleNamespace(client=address)
        taken, event, _ = await self.push(body, request, None)
        return event if taken else ""


def test_no_session_goes_for_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would be too much is refused: of an address, and in all. What is held stays, and what is read makes room."""
    monkeypatch.setattr(gradio_answers, "MOST_EVENTS", 3)

    async def visits() -> None:
        queue = Queue()
        held = [await queue.take("a", "x"), await queue.take("b", "x")]
        assert not await queue.take("c", "x")
        assert not await queue.take("a", "x")
        held.append(await queue.take("c", "y"))
        assert not await queue.take("d", "z")
        assert all(held)
        assert set(queue.pending_messages_per_session) == {"a", "b", "c"}
        queue.pending_event_ids_session["b"].clear()
        assert await queue.take("d", "z")

    asyncio.run(visits())


def test_a_text_counts_with_the_memory_it_takes() -> None:
    """A single emoji makes every character four bytes wide: the bound in bytes holds for such texts, too."""

    async def visit() -> None:
        queue = Queue()
        await queue.take("a", "x")
        held, text = queue.pending_messages_per_session, "a" * 1000 + "🎉"
        before = held.bytes
        held["a"].put_nowait(ProcessCompletedMessage(output={"data": [text]}, success=True))
        assert held.bytes - before >= sys.getsizeof(text) > 4 * len(text)

    asyncio.run(visit())
