"""Events come in order, whether they wake their reader or are found by it."""

from __future__ import annotations

import threading
from queue import Empty
from typing import Any

import pytest

from specviz.engine.events import Decided, Finished, Started, Waiting
from specviz.serving.event_queue import EventQueue, Item

RUN: Any = object()


def decided(number: int) -> Decided:
    return Decided(0, RUN, None, [number])


def test_events_come_in_order_and_none_is_an_answer_too() -> None:
    queue, error = EventQueue(), RuntimeError()
    events: list[Item] = [Waiting(0, 1), Started(0, RUN), *map(decided, range(5)), Finished(0, RUN), error]
    for event in events:
        queue.put(event)
    assert [queue.get(1) for _ in events] == events
    with pytest.raises(Empty):
        queue.get(0.01)


@pytest.mark.parametrize("last", [decided(3), Finished(0, RUN), RuntimeError()])
def test_a_reader_that_waits_gets_whatever_comes_next(last: Item) -> None:
    """A further round too, which does not wake it."""
    queue, found = EventQueue(), list[Item]()
    reader = threading.Thread(target=lambda: found.extend(queue.get(30) for _ in range(4)))
    reader.start()
    for event in (Started(0, RUN), decided(1), decided(2), last):
        queue.put(event)
    reader.join(30)
    assert found[-1] is last


def test_a_queue_is_read_while_it_is_written() -> None:
    queue, count = EventQueue(), 2000
    found = list[Item]()
    reader = threading.Thread(target=lambda: found.extend(queue.get(30) for _ in range(count + 1)))
    reader.start()
    for number in range(count):
        queue.put(decided(number))
    queue.put(Finished(0, RUN))
    reader.join(60)
    assert [event.token_ids for event in found[:-1] if isinstance(event, Decided)] == [
        [n] for n in range(count)
    ]
