"""What is held of events for those who do not read: bounded, and never at the cost of others."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from specviz.compat import gradio_queue
from specviz.compat.gradio_queue import UNREAD_SECONDS, HeldEvents


class Queue:
    """As gradio's: what it holds of sessions and events, and how an event comes in, ends, and is read."""

    def __init__(self) -> None:
        self.pending_messages_per_session: dict[str, list[str]] = {}
        self.pending_event_ids_session: dict[str, set[str]] = {}
        self.event_ids_to_events: dict[str, Any] = {}

    async def push(self, body: Any, request: Any, username: str | None) -> Any:
        self.pending_messages_per_session.setdefault(body.session_hash, [])
        event = f"{body.session_hash} {len(self.event_ids_to_events)}"
        self.pending_event_ids_session.setdefault(body.session_hash, set()).add(event)
        self.event_ids_to_events[event] = body
        return True, event, "success"


@pytest.fixture
def now() -> list[float]:
    return [0.0]


@pytest.fixture
def queue(now: list[float], monkeypatch: pytest.MonkeyPatch) -> Queue:
    """Holds two events of an address, and three in all."""
    monkeypatch.setattr(gradio_queue, "MOST_EVENTS", 3)
    queue = Queue()
    HeldEvents(queue, 2, lambda client: client, lambda: now[0])
    return queue


def push(queue: Queue, session: str, address: str) -> str:
    body, request = SimpleNamespace(session_hash=session), SimpleNamespace(client=address)
    taken, event, _ = asyncio.run(queue.push(body, request, None))
    return event if taken else ""


def test_no_session_goes_for_another_one(queue: Queue) -> None:
    """What would be too much is refused: of an address, and in all. What is held stays."""
    held = [push(queue, "a", "x"), push(queue, "b", "x")]
    assert not push(queue, "c", "x")
    assert not push(queue, "a", "x")
    held.append(push(queue, "c", "y"))
    assert not push(queue, "d", "z")
    assert all(held)
    assert set(queue.pending_messages_per_session) == {"a", "b", "c"}


def test_what_is_read_makes_room_at_once_and_what_nobody_reads_later(queue: Queue, now: list[float]) -> None:
    """An event that still runs is held however long it takes."""
    running, ended, read = push(queue, "a", "x"), push(queue, "b", "x"), push(queue, "c", "y")
    for event in (ended, read):
        del queue.event_ids_to_events[event]
    queue.pending_event_ids_session["c"].clear()
    assert push(queue, "d", "y")
    assert not push(queue, "e", "y")
    now[0] = UNREAD_SECONDS + 1
    assert push(queue, "e", "y")
    assert set(queue.pending_messages_per_session) == {"a", "d", "e"}
    assert running in queue.pending_event_ids_session["a"]
