"""The routes of a class: /class for the projector and, with the secret, for the teacher; what they ask for; and the invitation.

Served beside the page, and there only for a class. Knows a `Classroom` and the service's statistics; the two pages are `static/class/`.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import segno
from jinja2 import Environment, FileSystemLoader
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from specviz.app.classroom import LAST_STEP, POLL_SECONDS, Classroom, NotTheTeacherError, invitation
from specviz.app.components.scripted_html import STATIC, module_address, style
from specviz.app.look import font_faces
from specviz.errors import RequestError, SpecvizError
from specviz.serving.service import Service

_QUIET = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
"""The teacher's address has a secret in it."""
_TEMPLATES = Environment(loader=FileSystemLoader(STATIC / "class"), autoescape=True)


def qr_code(address: str) -> str:
    """The address as a QR code: an SVG element, dark on light."""
    return segno.make(address, error="m", micro=False).svg_inline(
        border=3, dark="#14161b", light="#ffffff", omitsize=True, svgclass="sc-qr", lineclass=None
    )


def class_routes(classroom: Classroom, service: Service) -> list[BaseRoute]:
    """The routes to be served beside the page."""

    async def page(request: Request) -> Response:
        """The page for the projector; with the secret in its address, the teacher's."""
        key = request.query_params.get("key")
        if key is not None:
            classroom.check(key)
        content = _TEMPLATES.get_template("class.html").render(
            address=classroom.address,
            shown=classroom.address.partition("://")[2].rstrip("/"),
            qr=qr_code(classroom.address),
            is_teacher=key is not None,
            last_step=LAST_STEP,
            seconds=POLL_SECONDS,
            module=module_address("class/class"),
            css=f"{font_faces()}\n{style(('shared/shared', 'class/class'))}",
        )
        return HTMLResponse(content, headers=_QUIET)

    async def now(request: Request) -> Response:
        """What is now: who is here, who waits and for how long, and the invitation. Counts the visitor who asks."""
        classroom.hear(request.query_params.get("visitor", ""))
        statistics = service.status()
        found = classroom.invitation
        content = {
            "here": classroom.here,
            "running": sum(each.running for each in statistics),
            "waiting": sum(each.waiting for each in statistics),
            "wait": classroom.wait(statistics),
            "invitation": found and {"lesson": found.lesson, "step": found.step, "link": found.link},
        }
        return JSONResponse(content, headers=_QUIET)

    async def invite(request: Request) -> Response:
        """Invite everybody to a step, or to none: {"key", "lesson", "step"}, or {"key"}."""
        asked = _read(await request.body())
        classroom.check(asked.get("key"))
        named = "lesson" in asked or "step" in asked
        classroom.invitation = invitation(asked.get("lesson"), asked.get("step")) if named else None
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
    """The endpoint, whose errors are answers: 403 without the secret, 422 for what does not fit."""

    async def answered(request: Request) -> Response:
        try:
            return await endpoint(request)
        except SpecvizError as error:
            status = 403 if isinstance(error, NotTheTeacherError) else 422
            return answer(str(error), status, _QUIET)

    return answered


def _read(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise RequestError('An invitation is a JSON object with "key", "lesson" and "step".')
    return found
