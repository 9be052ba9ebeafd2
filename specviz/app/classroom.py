"""A class: the number of open pages, and the step of a lesson to which the teacher invites everybody.

Whoever has the key may invite. A visitor's page identifies itself by a random number that it draws. Nothing is stored on disk.
"""

from __future__ import annotations

import hmac
import re
import secrets
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from specviz import environment
from specviz.errors import RequestError
from specviz.lessons.shelf import shown_lessons
from specviz.serving.statistics import EngineStatistics

POLL_SECONDS = 5.0
"""How often a page asks for the invitation, in seconds."""
LAST_STEP = 99
_HEARD = 3 * POLL_SECONDS
_MOST_VISITORS = 1000
_LATELY = 120.0
_VISITOR = re.compile(r"[0-9a-f]{16,32}")
_OUTSIDE = ("192.0.2.1", 9)  # a reserved address; connecting a datagram socket sends nothing


class NotTheTeacherError(RequestError):
    """The request lacks the teacher's key."""


@dataclass(frozen=True)
class Invitation:
    """A step of a lesson to which everybody is invited."""

    lesson: str
    step: int

    @property
    def link(self) -> str:
        """The link, relative to the page's address."""
        return "?" + urlencode({"lesson": self.lesson, "step": self.step})


def invitation(lesson: object, step: object) -> Invitation:
    """The invitation to a step of a lesson, counted from 1; raises RequestError if there is no such lesson or step."""
    known = shown_lessons().lessons
    if not isinstance(lesson, str) or lesson not in known:
        raise RequestError(f"There is no such lesson; there are {', '.join(known)}.")
    if isinstance(step, bool) or not isinstance(step, int) or not 1 <= step <= LAST_STEP:
        raise RequestError(f"A step is a whole number from 1 to {LAST_STEP}.")
    return Invitation(lesson, step)


class Classroom:
    """The class of this server."""

    def __init__(
        self, address: str, secret: str | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Create a class at the address that visitors type in. The default key is random."""
        self.address = address.rstrip("/") + "/"
        self.secret = secret or secrets.token_urlsafe(12)
        self.invitation: Invitation | None = None
        self._clock = clock
        self._heard: dict[str, float] = {}
        self._waits: deque[tuple[float, float, int]] = deque()

    @property
    def teachers_address(self) -> str:
        """The teacher's address, which contains the key."""
        return f"{self.address}class?{urlencode({'key': self.secret})}"

    def check(self, key: object) -> None:
        """Raise NotTheTeacherError unless `key` is the teacher's."""
        given = key.encode() if isinstance(key, str) and key.isascii() else b""
        if not hmac.compare_digest(given, self.secret.encode()):
            raise NotTheTeacherError(
                "This is not the teacher's address: use the one that the server printed when it started."
            )

    def hear(self, visitor: str) -> None:
        """Note that a visitor's page is open. Ids that no page would draw are ignored."""
        if _VISITOR.fullmatch(visitor) and (visitor in self._heard or self.here < _MOST_VISITORS):
            self._heard[visitor] = self._clock()

    @property
    def here(self) -> int:
        """Number of pages that polled recently."""
        now = self._clock()
        self._heard = {name: at for name, at in self._heard.items() if now - at <= _HEARD}
        return len(self._heard)

    def wait(self, statistics: Sequence[EngineStatistics]) -> float | None:
        """Mean queue time, in seconds, of the texts that ended in about the last two minutes; None if there are none."""
        now = self._clock()
        waited = sum(each.waited_seconds for each in statistics)
        ended = sum(sum(each.finished.values()) for each in statistics)
        self._waits.append((now, waited, ended))
        while now - self._waits[0][0] > _LATELY:
            self._waits.popleft()
        _, before, ended_before = self._waits[0]
        return (waited - before) / (ended - ended_before) if ended > ended_before else None


def class_address(port: int, given: Mapping[str, str] | None = None) -> str:
    """The address that the class types in: the environment's, or else this machine's own. Raises SpecvizError if it is invalid."""
    return environment.CLASS_ADDRESS.value(given) or f"http://{_own_address()}:{port}/"


def _own_address() -> str:
    """The address of the interface with a route to the outside, or 127.0.0.1."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_OUTSIDE)
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
