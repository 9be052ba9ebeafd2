"""Streams of a shared engine, from which a caller reads the events of one group. Dropping a stream aborts the group.

Waking the caller after every round would take a core from the engine during a pass. So a `Decided` that follows another `Decided` does
not wake the caller, which polls for such events ten times a second. All other events wake the caller at once.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial

from specviz.engine.events import Decided, Event, Finished, Stream, Waiting
from specviz.engine.scheduler import SequenceGroup
from specviz.engine.sequence import Sequence
from specviz.serving.inbox import Inbox

_BEAT = 1.0
"""Seconds without an event after which the stream yields a `Waiting`, so that the caller can notice that its client has disconnected."""
_PATIENCE = 0.1
"""Maximum seconds for which rounds stay unread. The page updates at most every 0.2 s."""

Item = Event | Waiting | Exception


class EventQueue:
    """Events in order, for one reader."""

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        self._urgent = threading.Event()
        self._was_round = False

    def put(self, item: Item) -> None:
        """Add an event without waiting."""
        self._items.append(item)
        if not (isinstance(item, Decided) and self._was_round):
            self._urgent.set()
        self._was_round = isinstance(item, Decided)

    def get(self, timeout: float) -> Item | None:
        """The next event; None if none came for `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while not self._items:
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            if self._urgent.wait(min(left, _PATIENCE)):
                self._urgent.clear()
        return self._items.popleft()


class SharedStream(Stream[Event | Waiting]):
    """Events of one group. The first `next` submits the group; closing or dropping the stream aborts the group.

    The engine's thread refers to the group and the event queue, never to the stream.
    """

    def __init__(
        self,
        group: SequenceGroup[Sequence],
        events: EventQueue,
        submit: Callable[[SequenceGroup[Sequence]], None],
        inbox: Inbox,
    ) -> None:
        """Read the events that `group` publishes to `events`. `submit` queues the group."""
        self._group, self._events, self._submit, self._inbox = group, events, submit, inbox
        self._unfinished = len(group.sequences)
        self._queue_position = 0
        self._finalizer: weakref.finalize | None = None
        """Aborts the group when the stream is dropped. None before the group is submitted."""

    def __next__(self) -> Event | Waiting:
        if not self._unfinished:
            raise StopIteration
        if self._finalizer is None:
            self._finalizer = weakref.finalize(self, self._inbox.send, self._group.abort)
            self._finalizer.atexit = False
            self._submit(self._group)
        event = self._events.get(timeout=_BEAT)
        if event is None:
            return Waiting(0, self._queue_position)
        if isinstance(event, Exception):
            self._unfinished = 0
            try:
                raise event
            finally:
                del event  # its traceback refers to this frame: a reference cycle
        self._queue_position = event.queue_position if isinstance(event, Waiting) else 0
        # max: it is already 0 if another thread has closed the stream
        self._unfinished = max(0, self._unfinished - isinstance(event, Finished))
        return event

    def close(self) -> None:
        """As `Stream.close`."""
        self._unfinished = 0
        if self._finalizer:
            self._finalizer()

    def abort(self, index: int | None = None) -> None:
        """As `Stream.abort`."""
        if index is not None:
            self._group.sequences[index]  # raises IndexError here, not in the engine's thread
        self._inbox.send(partial(self._group.abort, index))
