"""Events come in order, whether they wake their reader or not."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from specviz.engine.events import Decided, Finished, Started, Waiting
from specviz.serving.streams import EventQueue, Item

RUN: Any = object()


def decided(number: int) -> Decided:
    return Decided(0, RUN, None, [number])


@pytest.mark.parametrize("last", [decided(9), Finished(0, RUN), RuntimeError()])
def test_a_reader_that_waits_gets_every_event_in_order(last: Item) -> None:
    queue, found = EventQueue(), list[Item]()
    events: list[Item] = [Waiting(0, 1), Started(0, RUN), *map(decided, range(500)), last]
    reader = threading.Thread(target=lambda: found.extend(queue.get(30) for _ in events))
    reader.start()
    for event in events:
        queue.put(event)
    reader.join(60)
    assert found == events
    assert queue.get(0.01) is None
