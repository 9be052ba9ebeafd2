"""Refusals in one sentence: {"detail": sentence}, or {"error": {"message", "type", "param", "code"}} for OpenAI's clients."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse
from starlette.types import Scope

from specviz.app.running import in_a_sentence
from specviz.errors import QuotaError, RequestError, SpecvizError

OPENAI_PATH = "/v1/"
"""Prefix of the routes for OpenAI's clients."""
_STATUS: dict[type[Exception], int] = {RequestError: 400, QuotaError: 429, SpecvizError: 503, Exception: 500}
"""HTTP status by error type; the first type that matches counts."""
_TYPES = {429: "rate_limit_error", 500: "server_error", 503: "server_error"}
_CLOSING = (408, 413, 503)
"""Statuses after which the connection is closed, because the body was not read."""


class ParameterError(RequestError):
    """The request has an invalid parameter `param`. `status` is 404 if the parameter names something that does not exist."""

    def __init__(self, sentence: str, param: str, status: int = 400) -> None:
        super().__init__(sentence)
        self.param, self.status = param, status


def path_of(scope: Scope) -> str:
    """The path of a request, without the prefix under which a proxy serves the page."""
    return str(scope["path"].removeprefix(scope.get("root_path", "").rstrip("/")))


def refusal(scope: Scope, status: int, sentence: str) -> JSONResponse:
    """The answer to a refused request: in OpenAI's format for paths below `OPENAI_PATH`, otherwise {"detail": sentence}."""
    sentence = sentence.encode("utf-8", "replace").decode()  # it may name what was sent, with lone surrogates
    is_openai = path_of(scope).startswith(OPENAI_PATH)
    content = _object(status, sentence) if is_openai else {"detail": sentence}
    return JSONResponse(content, status, {"Connection": "close"} if status in _CLOSING else None)


def openai_error(error: Exception) -> tuple[dict[str, Any], int]:
    """The object that OpenAI's clients get for an error, and its HTTP status."""
    sentence = in_a_sentence(error)
    if isinstance(error, ParameterError):
        return _object(error.status, sentence, error.param), error.status
    status = next(status for kind, status in _STATUS.items() if isinstance(error, kind))
    return _object(status, sentence), status


def _object(status: int, sentence: str, param: str | None = None) -> dict[str, Any]:
    kind = _TYPES.get(status, "invalid_request_error")
    code = f"{param}_not_found" if param and status == 404 else None
    return {"error": {"message": sentence, "type": kind, "param": param, "code": code}}
