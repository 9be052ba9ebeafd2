"""What a caller of a shared engine iterates over. Holds the caller's end of a group: its events, and the end of it when it is dropped.

Knows the inbox and one group's events; knows nothing of batches.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from functools import partial
from queue import Empty

from specviz.engine.events import Event, Finished, Stream, Waiting
from specviz.engine.scheduler import SequenceGroup
from specviz.engine.sequence import Sequence
from specviz.errors import EngineError
from specviz.serving.event_queue import EventQueue
from specviz.serving.inbox import Inbox

_BEAT = 1.0
"""`Waiting` is repeated after so many seconds of silence, so that a caller notices that its client has gone."""
_GRACE = 60.0
"""Seconds past its deadline after which a stream gives up on the engine's thread."""


class SharedStream(Stream[Event | Waiting]):
    """Events of one group: submits it on the first `next`; closing or dropping the stream aborts it.

    The engine's thread refers to the group and the event queue alone, never to the stream.
    """

    def __init__(
        self,
        group: SequenceGroup[Sequence],
        events: EventQueue,
        submit: Callable[[SequenceGroup[Sequence]], float],
        inbox: Inbox,
    ) -> None:
        """A stream of what `group` publishes to `events`, once `submit` has queued it and returned its deadline."""
        self._group, self._events, self._submit_group, self._inbox = group, events, submit, inbox
        self._unfinished = len(group.sequences)
        self._queue_position = 0
        self._deadline = 0.0
        self._finalizer: weakref.finalize | None = None
        """Aborts the group. None before it is submitted."""

    def __next__(self) -> Event | Waiting:
        if not self._unfinished:
            raise StopIteration
        try:
            if self._finalizer is None:
                self._submit()
            event = self._receive()
        except BaseException:
            self.close()
            raise
        if isinstance(event, Exception):
            self._end()
            try:
                raise event
            finally:
                del event  # its traceback refers to this frame: a reference cycle
        self._queue_position = event.queue_position if isinstance(event, Waiting) else 0
        # If another thread has closed the stream, the count is 0 already.
        self._unfinished = max(0, self._unfinished - isinstance(event, Finished))
        if not self._unfinished:
            self._end()
        return event

    def close(self) -> None:
        """As `Stream.close`."""
        self._unfinished = 0
        if self._finalizer:
            self._finalizer()

    def abort(self, index: int | None = None, reason: str = "cancelled") -> None:
        """As `Stream.abort`."""
        if index is not None:
            self._group.sequences[index]  # raises IndexError here, not in the engine's thread
        self._inbox.tell(partial(self._group.abort, index, reason))

    def _submit(self) -> None:
        self._finalizer = weakref.finalize(self, self._inbox.tell, self._group.abort)
        self._finalizer.atexit = False
        self._deadline = self._submit_group(self._group)

    def _receive(self) -> Event | Waiting | Exception:
        try:
            return self._events.get(timeout=_BEAT)
        except Empty:
            if self._inbox.is_closed or time.monotonic() > self._deadline + _GRACE:
                raise EngineError(
                    "The engine does not answer: this run has ended; the next one should work."
                ) from None
            return Waiting(0, self._queue_position)

    def _end(self) -> None:
        """Nothing is left to abort."""
        self._unfinished = 0
        if self._finalizer:
            self._finalizer.detach()
