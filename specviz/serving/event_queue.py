"""The events of one stream on their way from the engine's thread to whoever reads them.

Waking a reader for every round costs the engine a core's attention in the middle of a pass. So a reader is woken at once by whatever
begins or ends something, and by further rounds a few times a second; those that came meanwhile are read without waiting. Knows
events; knows no engine.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from queue import Empty

from specviz.engine.events import Decided, Event, Waiting

_PATIENCE = 0.1
"""Seconds for which rounds may lie unread: a page shows what is new at most every 0.2 s."""

Item = Event | Waiting | Exception


class EventQueue:
    """Events in order, for one reader."""

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        self._urgent = threading.Event()
        self._was_round = False

    def put(self, item: Item) -> None:
        """Add an event; never waits."""
        self._items.append(item)
        if not (isinstance(item, Decided) and self._was_round):
            self._urgent.set()
        self._was_round = isinstance(item, Decided)

    def get(self, timeout: float) -> Item:
        """The next event.

        Raises:
            queue.Empty: none came for `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        while not self._items:
            left = deadline - time.monotonic()
            if left <= 0:
                raise Empty
            if self._urgent.wait(min(left, _PATIENCE)):
                self._urgent.clear()
        return self._items.popleft()
