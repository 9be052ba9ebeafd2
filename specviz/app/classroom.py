"""A class (of students): counts the open pages, and invites everybody to the lesson step that the teacher chooses.

Whoever has the teacher's key may invite. A visitor's page identifies itself by a random number. Nothing is stored on disk. The files
of the projector's and the teacher's page are in `static/class/`.
"""

from __future__ import annotations

import hmac
import json
import re
import secrets
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import monotonic
from typing import Any
from urllib.parse import urlencode

import segno
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from specviz import environment
from specviz.app.components.scripted_html import TEMPLATES, module_address, style
from specviz.app.look import font_faces
from specviz.errors import RequestError, SpecvizError
from specviz.lessons.lesson import shown_lessons
from specviz.serving.service import Service
from specviz.serving.statistics import EngineStatistics

POLL_SECONDS = 5.0
"""Seconds after which an open page requests the invitation again."""
LAST_STEP = 99
_HEARD = 3 * POLL_SECONDS
_MOST_VISITORS = 1000
_LATELY = 120.0
_VISITOR = re.compile(r"[0-9a-f]{16,32}")
_OUTSIDE = ("192.0.2.1", 9)  # a reserved address; connecting a datagram socket sends nothing
_QUIET = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
"""Headers that hide the teacher's address, which contains the key, from caches and other sites."""


class NotTheTeacherError(RequestError):
    """The request lacks the teacher's key."""


class Classroom:
    """The class (of students) that this server serves."""

    def __init__(self, address: str) -> None:
        """Create a class with a random key for its teacher. Visitors type in `address`."""
        self.address = address.rstrip("/") + "/"
        self.secret = secrets.token_urlsafe(12)
        self.invitation: dict[str, Any] | None = None
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

    def invite(self, asked: Mapping[str, Any]) -> None:
        """Invite everybody to step `asked["step"]` (from 1) of lesson `asked["lesson"]`; withdraw the invitation if both are missing.

        Raises:
            NotTheTeacherError: `asked["key"]` is not the teacher's key.
            RequestError: there is no such lesson, or the step is not from 1 to `LAST_STEP`.
        """
        self.check(asked.get("key"))
        lesson, step, known = asked.get("lesson"), asked.get("step"), shown_lessons()
        if not asked.keys() & {"lesson", "step"}:
            self.invitation = None
            return
        if not isinstance(lesson, str) or lesson not in known:
            raise RequestError(f"There is no such lesson; there are {', '.join(known)}.")
        if type(step) is not int or not 1 <= step <= LAST_STEP:
            raise RequestError(f"A step is a whole number from 1 to {LAST_STEP}.")
        asked = {"lesson": lesson, "step": step}
        self.invitation = {**asked, "link": f"?{urlencode(asked)}"}

    def hear(self, visitor: str) -> None:
        """Record that the page with the id `visitor` is open. Ignores malformed ids, and new ids while `_MOST_VISITORS` pages are open."""
        if _VISITOR.fullmatch(visitor) and (visitor in self._heard or self.here < _MOST_VISITORS):
            self._heard[visitor] = monotonic()

    @property
    def here(self) -> int:
        """Number of pages that have sent a request within the last `_HEARD` seconds."""
        now = monotonic()
        self._heard = {name: at for name, at in self._heard.items() if now - at <= _HEARD}
        return len(self._heard)

    def wait(self, statistics: Sequence[EngineStatistics]) -> float | None:
        """Return the mean seconds in the queue per finished text, over about the last two minutes; None if no text has finished."""
        now = monotonic()
        waited = sum(each.waited_seconds for each in statistics)
        ended = sum(sum(each.finished.values()) for each in statistics)
        self._waits.append((now, waited, ended))
        while now - self._waits[0][0] > _LATELY:
            self._waits.popleft()
        _, before, ended_before = self._waits[0]
        return (waited - before) / (ended - ended_before) if ended > ended_before else None


def class_address(port: int, given: Mapping[str, str] | None = None) -> str:
    """The address for visitors: SPECVIZ_CLASS_ADDRESS, or this machine's address. Raises SpecvizError if the variable is invalid."""
    return environment.CLASS_ADDRESS.value(given) or f"http://{_own_address()}:{port}/"


def _own_address() -> str:
    """The IPv4 address of the network interface with a route to the internet; 127.0.0.1 if there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_OUTSIDE)
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def qr_code(address: str) -> str:
    """The address as a QR code: an SVG element, dark on light."""
    return segno.make(address, error="m", micro=False).svg_inline(
        border=3, dark="#14161b", light="#ffffff", omitsize=True, svgclass="sc-qr", lineclass=None
    )


def class_routes(classroom: Classroom, service: Service) -> list[BaseRoute]:
    """The routes of a class."""

    async def page(request: Request) -> Response:
        """The projector's page, or the teacher's if the address contains the key."""
        key = request.query_params.get("key")
        if key is not None:
            classroom.check(key)
        content = TEMPLATES.get_template("class/class.html").render(
            address=classroom.address,
            shown=classroom.address.partition("://")[2].rstrip("/"),
            qr=qr_code(classroom.address),
            is_teacher=key is not None,
            last_step=LAST_STEP,
            seconds=POLL_SECONDS,
            module=module_address("class/class"),
            css=f"{font_faces()}\n{style('shared/shared', 'class/class')}",
        )
        return HTMLResponse(content, headers=_QUIET)

    async def now(request: Request) -> Response:
        """Answer with counts of visitors, running and waiting texts, the mean wait and the invitation. The sender counts as a visitor."""
        classroom.hear(request.query_params.get("visitor", ""))
        statistics = service.status()
        content = {
            "here": classroom.here,
            "running": sum(each.running for each in statistics),
            "waiting": sum(each.waiting for each in statistics),
            "wait": classroom.wait(statistics),
            "invitation": classroom.invitation,
        }
        return JSONResponse(content, headers=_QUIET)

    async def invite(request: Request) -> Response:
        """Invite everybody to a step ({"key", "lesson", "step"}), or withdraw the invitation ({"key"})."""
        try:
            asked = json.loads(await request.body())
        except (ValueError, RecursionError):
            asked = None
        if not isinstance(asked, dict):
            raise RequestError('An invitation is a JSON object with "key", "lesson" and "step".')
        classroom.invite(asked)
        return await now(request)

    return [
        Route("/class", _in_a_sentence(page, PlainTextResponse)),
        Route("/class/now", _in_a_sentence(now)),
        Route("/class/invite", _in_a_sentence(invite), methods=["POST"]),
    ]


def _in_a_sentence(
    endpoint: Callable[[Request], Awaitable[Response]],
    answer: Callable[..., Response] = lambda sentence, *more: JSONResponse({"detail": sentence}, *more),
) -> Callable[[Request], Awaitable[Response]]:
    """Wrap an endpoint so that `answer` makes a response from a `SpecvizError`, with status 403 for a wrong key, otherwise 422."""

    async def answered(request: Request) -> Response:
        try:
            return await endpoint(request)
        except SpecvizError as error:
            status = 403 if isinstance(error, NotTheTeacherError) else 422
            return answer(str(error), status, _QUIET)

    return answered
