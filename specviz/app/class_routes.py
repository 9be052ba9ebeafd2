"""Routes of a class: the projector's page, the teacher's page, the numbers that both poll, and the invitation.

The files of both pages are in `static/class/`.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import segno
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from specviz.app.classroom import LAST_STEP, POLL_SECONDS, Classroom, NotTheTeacherError, invitation
from specviz.app.components.scripted_html import TEMPLATES, module_address, style
from specviz.app.look import font_faces
from specviz.errors import RequestError, SpecvizError
from specviz.serving.service import Service

_QUIET = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
"""Headers that keep the teacher's address, which contains the key, from caches and other sites."""


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
        """Numbers of visitors and of running and waiting texts, mean wait, invitation. Also counts the sender as a visitor."""
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
        """Invite everybody to a step ({"key", "lesson", "step"}), or withdraw the invitation ({"key"})."""
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
    """Wrap an endpoint so that errors become responses: status 403 for a wrong key, otherwise 422."""

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
