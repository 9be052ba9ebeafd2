"""A class: how many have the page open, and the step of a lesson that everybody is invited to. Nobody is led, named or kept.

Who holds the secret may invite; visitors are numbers that their pages draw for themselves, counted while they are heard of. Held in
memory alone. Knows links and the lessons' names; knows neither routes nor what a lesson shows.
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit

from specviz.app.link import parse_link
from specviz.errors import RequestError, SpecvizError
from specviz.lessons.shelf import shown_lessons
from specviz.serving.statistics import EngineStatistics

ADDRESS = "SPECVIZ_CLASS_ADDRESS"
"""The variable with the address that a class is told, where it is not this machine's own: behind a proxy, in a container."""
POLL_SECONDS = 5.0
"""How often a page asks, and so how late an invitation may come."""
LAST_STEP = 99
_HEARD = 3 * POLL_SECONDS
_MOST_VISITORS = 1000
_LATELY = 120.0
_VISITOR = re.compile(r"[0-9a-f]{16,32}")
_LESSON = re.compile(r"[a-z][a-z0-9-]{0,39}")
_OUTSIDE = ("192.0.2.1", 9)  # of no machine; asking for the way there sends nothing


class NotTheTeacherError(RequestError):
    """What only the teacher may do was asked for without the secret."""


@dataclass(frozen=True)
class Invitation:
    """A step of a lesson that everybody is invited to."""

    lesson: str
    step: int

    @property
    def link(self) -> str:
        """Relative to the page's address."""
        return "?" + urlencode({"lesson": self.lesson, "step": self.step})


def invitation(lesson: object, step: object) -> Invitation:
    """The invitation to a step of a lesson, counted from 1.

    Raises:
        RequestError: it is no lesson's name, no step, or no link that the page takes.
    """
    if not isinstance(lesson, str) or not _LESSON.fullmatch(lesson):
        raise RequestError("A lesson's name is of small letters, digits and hyphens, such as cascades.")
    if isinstance(step, bool) or not isinstance(step, int) or not 1 <= step <= LAST_STEP:
        raise RequestError(f"A step is a whole number from 1 to {LAST_STEP}.")
    found = parse_link([("lesson", lesson)], lessons=tuple(shown_lessons().lessons))
    if found.problems:
        raise RequestError("There is no such lesson: " + " ".join(found.problems))
    return Invitation(lesson, step)


class Classroom:
    """One class, from the start of the server to its end."""

    def __init__(
        self, address: str, secret: str | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """At the address that visitors type in; the secret is drawn unless it is given."""
        self.address = address.rstrip("/") + "/"
        self.secret = secret or secrets.token_urlsafe(12)
        self.invitation: Invitation | None = None
        self._clock = clock
        self._heard: dict[str, float] = {}
        self._waits: deque[tuple[float, float, int]] = deque()

    @property
    def teachers_address(self) -> str:
        """With the secret in it."""
        return f"{self.address}class?{urlencode({'key': self.secret})}"

    def check(self, key: object) -> None:
        """Check that the teacher asks.

        Raises:
            NotTheTeacherError: it is not the secret.
        """
        given = key.encode() if isinstance(key, str) and key.isascii() else b""
        if not hmac.compare_digest(given, self.secret.encode()):
            raise NotTheTeacherError(
                "This is not the teacher's address: take the one that was printed when the server started."
            )

    def hear(self, visitor: str) -> None:
        """A visitor's page is open; a name that no page of ours draws is passed over."""
        if _VISITOR.fullmatch(visitor) and (visitor in self._heard or self.here < _MOST_VISITORS):
            self._heard[visitor] = self._clock()

    @property
    def here(self) -> int:
        """Pages that were heard of lately."""
        now = self._clock()
        self._heard = {name: at for name, at in self._heard.items() if now - at <= _HEARD}
        return len(self._heard)

    def wait(self, statistics: Sequence[EngineStatistics]) -> float | None:
        """Seconds that a text waited for its turn, the mean of those that ended since about two minutes; None where none did."""
        now = self._clock()
        waited = sum(each.waited_seconds for each in statistics)
        ended = sum(sum(each.finished.values()) for each in statistics)
        self._waits.append((now, waited, ended))
        while now - self._waits[0][0] > _LATELY:
            self._waits.popleft()
        _, before, ended_before = self._waits[0]
        return (waited - before) / (ended - ended_before) if ended > ended_before else None


def class_address(port: int, environment: Mapping[str, str] | None = None) -> str:
    """The address that a class types in: what the environment says, else this machine's own on its network.

    Raises:
        SpecvizError: what the environment says is no address.
    """
    given = (os.environ if environment is None else environment).get(ADDRESS)
    if given is None:
        return f"http://{_own_address()}:{port}/"
    parts = urlsplit(given)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise SpecvizError(f"{ADDRESS} must be an address such as http://192.168.1.7:7860/.")
    return given


def _own_address() -> str:
    """Of the interface that leads out of this machine; 127.0.0.1 where none does."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_OUTSIDE)
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
