"""Messages to a shared engine's thread: functions to call between two steps. The thread shares nothing else, not even a lock."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import TypeVar

from specviz.errors import EngineError

T = TypeVar("T")

STOPPED = "The server has ended this run because it is being stopped."

Function = Callable[[], object]
Refuse = Callable[[EngineError], object]


class Inbox:
    """A queue of messages from any thread to one receiving thread."""

    def __init__(self) -> None:
        self._messages: SimpleQueue[tuple[Function, Refuse | None]] = SimpleQueue()
        self._is_closed = False

    def send(self, function: Function, refuse: Refuse | None = None) -> None:
        """Send a function, which must raise nothing. `refuse` is called with an error instead if the function will never be called.

        Without `refuse`, this is safe in finalizers, because `SimpleQueue.put` is reentrant.
        """
        self._messages.put((function, refuse))
        if refuse and self._is_closed:  # if it closes after this line, `close` refuses the message
            self._refuse_all()

    def receive(self, timeout: float | None) -> list[tuple[Function, Refuse | None]]:
        """Returns all messages. If there are none, waits up to `timeout` seconds (None: without limit) for the first."""
        messages = []
        try:
            messages.append(self._messages.get(timeout=timeout))
            while True:
                messages.append(self._messages.get_nowait())
        except Empty:
            return messages

    def close(self) -> None:
        """Refuse all messages not yet received, and all later ones."""
        self._is_closed = True
        self._refuse_all()

    def _refuse_all(self) -> None:
        for _, refuse in self.receive(timeout=0):
            if refuse:
                refuse(EngineError(STOPPED))


def answer(future: Future[T], function: Callable[[], T]) -> None:
    """Call `function` and set its result, or its error, in `future`."""
    try:
        future.set_result(function())
    except BaseException as error:
        future.set_exception(error)
        del future  # the error's traceback refers to this frame: a reference cycle
