"""The way to a shared engine's thread: functions that other threads want it to call. They share no other state and no lock with it."""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import NamedTuple

from specviz.errors import EngineError

STOPPED = "The server has ended this run because it is being stopped."


class Message(NamedTuple):
    """A function to be called between two steps; `refuse` gets the error if it never will be."""

    function: Callable[[], object]
    refuse: Callable[[EngineError], object] | None = None


class Inbox:
    """A queue of messages from any thread to one."""

    def __init__(self) -> None:
        self._messages: SimpleQueue[Message] = SimpleQueue()
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Whether the thread has ended."""
        return self._is_closed

    def tell(self, function: Callable[[], object]) -> None:
        """Send what needs no answer and raises nothing. Safe in finalizers: a `SimpleQueue` may be put into at any moment."""
        if not self._is_closed:
            self._messages.put(Message(function))

    def ask(self, function: Callable[[], object], refuse: Callable[[EngineError], object]) -> None:
        """Send what is certain to be called or refused."""
        self._messages.put(Message(function, refuse))
        # If the inbox is closed only after this line, `close` refuses it.
        if self._is_closed:
            self._refuse_all()

    def receive(self, timeout: float | None) -> list[Message]:
        """All messages there are. Waits for the first up to `timeout` seconds, for ever if None; empty after that."""
        messages: list[Message] = []
        try:
            messages.append(self._messages.get(timeout=timeout))
            while True:
                messages.append(self._messages.get_nowait())
        except Empty:
            return messages

    def close(self) -> None:
        """Refuse what has not been received, and whatever comes from now on."""
        self._is_closed = True
        self._refuse_all()

    def _refuse_all(self) -> None:
        for message in self.receive(timeout=0):
            if message.refuse:
                message.refuse(EngineError(STOPPED))
