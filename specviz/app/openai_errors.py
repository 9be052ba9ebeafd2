"""Errors in the form that OpenAI's clients read: {"error": {"message", "type", "param", "code"}}."""

from __future__ import annotations

import json
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specviz.app.hosts import path_of
from specviz.app.running import in_a_sentence
from specviz.errors import QuotaError, RequestError, SpecvizError

PATH = "/v1/"
"""Beginning of the addresses of OpenAI's clients."""
_STATUS: dict[type[Exception], int] = {RequestError: 400, QuotaError: 429, SpecvizError: 503, Exception: 500}
"""HTTP status by error type; the first match counts."""
_TYPES = {429: "rate_limit_error", 500: "server_error", 503: "server_error"}
_KEPT = ("allow", "cache-control", "connection")
"""Headers that a refusal keeps."""


class ParameterError(RequestError):
    """A parameter that cannot be served; status 404 if it names something that does not exist."""

    def __init__(self, sentence: str, param: str, status: int = 400) -> None:
        super().__init__(sentence)
        self.param, self.status = param, status


def error_answer(error: Exception) -> tuple[dict[str, Any], int]:
    """The JSON object for an error, and its HTTP status."""
    sentence = in_a_sentence(error)
    if isinstance(error, ParameterError):
        return _object(error.status, sentence, error.param), error.status
    status = next(status for kind, status in _STATUS.items() if isinstance(error, kind))
    return _object(status, sentence), status


def _object(status: int, sentence: str, param: str | None = None) -> dict[str, Any]:
    return {
        "error": {
            "message": sentence,
            "type": _TYPES.get(status, "invalid_request_error"),
            "param": param,
            "code": f"{param}_not_found" if param and status == 404 else None,
        }
    }


class OpenAIErrors:
    """ASGI middleware: below `PATH`, rewrites refusals by any part of the server into OpenAI's form."""

    def __init__(self, app: ASGIApp) -> None:
        """Wrap `app`."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or not path_of(scope).startswith(PATH):
            await self._app(scope, receive, send)
            return
        refused: Message | None = None
        body = b""

        async def forward(message: Message) -> None:
            nonlocal refused, body
            if message["type"] == "http.response.start" and message["status"] >= 400:
                refused = message
            elif refused is None:
                await send(message)
            else:
                body += message.get("body", b"")
                if not message.get("more_body", False):
                    await _formed(refused, body)(scope, receive, send)

        await self._app(scope, receive, forward)


def _formed(refused: Message, body: bytes) -> JSONResponse:
    """A refusal with its sentence in OpenAI's form."""
    status = refused["status"]
    try:
        content = json.loads(body)
    except ValueError:  # plain text, not JSON
        content = {"detail": body.decode("utf-8", "replace")}
    if "detail" in content:
        content = _object(status, str(content["detail"]))
    headers = Headers(raw=refused["headers"])
    return JSONResponse(content, status, {name: headers[name] for name in _KEPT if name in headers})
