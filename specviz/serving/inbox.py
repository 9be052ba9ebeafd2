"""Messages to a shared engine's thread: functions to call between two steps. It shares nothing else with other threads, not even a lock."""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import NamedTuple

from specviz.errors import EngineError

STOPPED = "The server has ended this run because it is being stopped."


class Message(NamedTuple):
    """A function to call, and a function that gets an error if the first will never be called."""

    function: Callable[[], object]
    refuse: Callable[[EngineError], object] | None = None


class Inbox:
    """A queue of messages from any thread to one receiving thread."""

    def __init__(self) -> None:
        self._messages: SimpleQueue[Message] = SimpleQueue()
        self.is_closed = False
        """Whether the receiving thread has ended."""

    def tell(self, function: Callable[[], object]) -> None:
        """Send a function that raises nothing and needs no answer. Safe in finalizers, as `SimpleQueue.put` is reentrant."""
        if not self.is_closed:
            self._messages.put(Message(function))

    def ask(self, function: Callable[[], object], refuse: Callable[[EngineError], object]) -> None:
        """Send a function. Either it or `refuse` is called."""
        self._messages.put(Message(function, refuse))
        if self.is_closed:  # if it closes after this line, `close` refuses the message
            self._refuse_all()

    def receive(self, timeout: float | None) -> list[Message]:
        """All messages. If there are none, waits up to `timeout` seconds (None: without limit) for one."""
        messages: list[Message] = []
        try:
            messages.append(self._messages.get(timeout=timeout))
            while True:
                messages.append(self._messages.get_nowait())
        except Empty:
            return messages

    def close(self) -> None:
        """Refuse all messages not yet received, and all later ones."""
        self.is_closed = True
        self._refuse_all()

    def _refuse_all(self) -> None:
        for message in self.receive(timeout=0):
            if message.refuse:
                message.refuse(EngineError(STOPPED))
