"""The guard: limits requests, refuses those that neither the page nor an honest client sends, and answers failures in one sentence.

`Guard` is ASGI middleware around gradio's app. Without the guard, gradio serves more addresses than this page needs, and its errors
repeat what was sent. `GuardedBlocks` are Blocks whose events fail with one sentence.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
from collections.abc import AsyncIterator, Sequence
from contextvars import ContextVar
from typing import Any, cast

import gradio as gr
from anyio import move_on_after
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specviz.app.clients import Clients
from specviz.app.compression import CompressedPage
from specviz.app.hosts import HostCheck
from specviz.app.refusals import path_of, refusal
from specviz.compat import gradio as compat
from specviz.compat.gradio_answers import UNREAD_SECONDS
from specviz.errors import SpecvizError, quoted

log = logging.getLogger(__name__)

MAX_BODY = 2_000_000
"""Largest body of a request, in bytes. Clients send data only in bodies, and a body is discarded with its request: nothing becomes a file."""
SMALL_BODY = 64_000
"""Number of bytes of each body that do not count towards `MAX_BODIES`, so that large bodies never keep small ones out."""
MAX_BODIES = 64_000_000
"""Maximum total of the bodies of all requests in progress, in bytes."""
BODY_SECONDS = 60
"""Maximum seconds until a body has arrived."""

FAILED = "Something broke inside SpecViz and this was not done; the next request should work."
MAX_SENTENCE = 300
"""Maximum length of the answer to a failed event, in characters."""

failed_status: ContextVar[dict[str, int] | None] = ContextVar("failed_status", default=None)
"""Holds the HTTP status for the answer to a failed event, as {"status": …}."""
TOO_LARGE = f"The body of a request may have at most {MAX_BODY} bytes here: send less."
NO_ANSWER = (
    f"There is no such answer here: it was fetched before, or nobody read it for {UNREAD_SECONDS:g} s."
)
CROWDED = "Too much is being sent to this server at once: try again in a moment."
TOO_SLOW = f"The body of a request must arrive within {BODY_SECONDS} s: send it again."
UNFIT = "This server cannot read the request; nothing was done."

_OWN_ADDRESSES = (
    *("healthz", "metrics", "lessons", "rule", "class(/(now|invite))?"),
    "v1/(models(/[^/]+)?|(chat/)?completions)",
)
_ANSWERED = re.compile(
    rf"/({'|'.join(['', *compat.PAGE_ADDRESSES, *_OWN_ADDRESSES])}|{compat.API_PREFIX.strip('/')}/({'|'.join(compat.API_ADDRESSES)}))/?",
    re.DOTALL,
)
_EVENT = re.compile(compat.EVENT_ADDRESS)
_CALL = re.compile(r"/call/(?:v2/)?([^/]+)/?$")
_UNKNOWN = re.compile(r"Parameter `(.*)` is not a valid key-word argument", re.DOTALL)
_MISSING = re.compile(r"No value provided for required argument: (\w+)")
_HOST = re.compile(r"[\w.-]{1,253}(:[0-9]{1,5})?|\[[0-9a-fA-F:.]{2,45}\](:[0-9]{1,5})?", re.ASCII)
_SCHEME = re.compile(r"https?|wss?", re.ASCII)
_RANGE = re.compile(r"bytes=[0-9]{0,18}-[0-9]{0,18}", re.ASCII)


def guarded(routes: Sequence[BaseRoute], hosts: frozenset[str]) -> dict[str, Any]:
    """Options of gradio's app: middleware that checks requests, also against `hosts`; `routes`, before gradio's catch-all routes."""
    return {
        "routes": routes,
        "middleware": [
            Middleware(Clients),
            Middleware(Guard),
            Middleware(HostCheck, hosts),
            Middleware(CompressedPage),
        ],
        "exception_handlers": {RequestValidationError: _unfit, 405: _not_allowed},
    }


class Guard:
    """ASGI middleware before gradio. Answers with a status and a sentence if the path is unknown, a header is malformed, a body is too
    slow or too large, all bodies together are too large, or gradio fails.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._held = 0  # bytes, of all bodies, that count towards `MAX_BODIES`

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, failing = False, dict[str, int]()

        async def forward(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                if message["status"] == 500 and _EVENT.search(scope["path"]):
                    message = {**message, **failing}
            elif message.get("body") == compat.NO_ANSWER:
                message = {**message, "body": compat.NO_ANSWER.replace(b"404: Not Found", NO_ANSWER.encode())}
            await send(message)

        token = failed_status.set(failing)
        try:
            _check_head(scope)
            async with self._read(receive) as read:
                await self._app(scope, read, forward)
        except _RefusalError as error:
            await refusal(scope, error.status, str(error))(scope, receive, send)
        except Exception as error:
            # For an unknown session, gradio raises HTTPException when the stream has begun: too late for an error answer.
            is_usual = isinstance(error.__cause__ or error, HTTPException | ClientDisconnect)
            misnamed = _misnamed(error, scope["path"])
            if not is_usual and not misnamed:
                log.warning("a request failed in gradio", exc_info=error)
            if begun:
                with contextlib.suppress(Exception):
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
            elif not isinstance(error, ClientDisconnect):
                await refusal(scope, 400, misnamed or UNFIT)(scope, receive, send)
        finally:
            failed_status.reset(token)

    @contextlib.asynccontextmanager
    async def _read(self, receive: Receive) -> AsyncIterator[Receive]:
        """Read the whole body, within the limits. Yields a `receive` whose first message is the body. Raises `_RefusalError`."""
        parts, length, held, more = [], 0, 0, True
        try:
            with move_on_after(BODY_SECONDS) as in_time:
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientDisconnect
                    parts.append(message.get("body", b""))
                    length, more = length + len(parts[-1]), message.get("more_body", False)
                    counted = max(0, length - SMALL_BODY)
                    self._held, held = self._held + counted - held, counted
                    if length > MAX_BODY:
                        raise _RefusalError(413, TOO_LARGE)
                    if self._held > MAX_BODIES:
                        raise _RefusalError(503, CROWDED)
            if in_time.cancelled_caught:
                raise _RefusalError(408, TOO_SLOW)
            unread: list[Message] = [{"type": "http.request", "body": b"".join(parts)}]

            async def read() -> Message:
                return unread.pop() if unread else await receive()

            yield read
        finally:
            self._held -= held


class _RefusalError(Exception):
    """The request is refused with `status`; the message is the sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def _misnamed(error: Exception, path: str) -> str:
    """If gradio failed because of an unknown endpoint, or an unknown or missing argument, return a sentence about it; otherwise ""."""
    listed = f"{compat.API_PREFIX}/info lists the valid names."
    if (found := _CALL.search(path)) and compat.lacks_endpoint(error, found[1]):
        return f"There is no endpoint {quoted(found[1])} here; {listed}"
    if not isinstance(error, TypeError):
        return ""
    if found := _UNKNOWN.match(str(error)):
        return f"There is no argument {quoted(found[1])} here: leave it out; {listed}"
    if found := _MISSING.match(str(error)):
        return f"The argument {found[1][:60]} is missing: give it a value."
    return ""


def _check_head(scope: Scope) -> None:
    """Raise `_RefusalError` for a request that gradio must not see. Remove headers on which gradio fails."""
    path = path_of(scope)
    if not _ANSWERED.fullmatch(path) or "\0" in path:
        raise _RefusalError(404, "Not Found")
    headers = Headers(scope=scope)
    for name, pattern in (("host", _HOST), ("x-forwarded-host", _HOST), ("x-forwarded-proto", _SCHEME)):
        parts = [part.strip() for value in headers.getlist(name) for part in value.split(",")]
        if not all(map(pattern.fullmatch, parts)):
            raise _RefusalError(400, f"The header {name} is malformed.")
    scope["headers"] = [
        (name, value)
        for name, value in scope["headers"]
        if name != b"x-gradio-server"
        and not (name == b"range" and not _RANGE.fullmatch(value.decode("latin-1")))
    ]
    length = headers.get("content-length", "0")
    if not length.isdecimal() or int(length[:20]) > MAX_BODY:
        raise _RefusalError(413, TOO_LARGE)


async def _unfit(request: Request, error: Exception) -> Response:
    """Answer 422 and say what is wrong with a body or a query, without repeating its content."""
    found = cast(RequestValidationError, error).errors()[:3]
    said = [f"{'.'.join(str(part)[:40] for part in each['loc'])}: {each['type']}" for each in found]
    return refusal(request.scope, 422, f"This address does not accept the request ({'; '.join(said)}).")


async def _not_allowed(request: Request, error: Exception) -> Response:
    answer = refusal(request.scope, 405, "Method Not Allowed")
    answer.headers.update(cast(HTTPException, error).headers or {})
    return answer


class GuardedBlocks(compat.LastingBlocks):
    """Blocks whose events refuse values that no control of the page sends."""

    async def preprocess_data(self, block_fn: Any, inputs: list[Any], *more: Any, **options: Any) -> Any:
        """The values for an event's function. Raises gr.Error if they do not fit the event."""
        try:
            if len(inputs) != (wanted := len(block_fn.inputs)):
                raise gr.Error(
                    f"{len(inputs)} values were sent, {wanted} are expected: send all, or name the arguments."
                )
            for block, value in zip(block_fn.inputs, inputs, strict=True):
                _check(block, value)
            return await super().preprocess_data(block_fn, inputs, *more, **options)
        except gr.Error:
            raise
        except Exception:
            raise gr.Error("The values sent do not fit this event.") from None

    async def process_api(self, block_fn: Any, *args: Any, **options: Any) -> dict[str, Any]:
        """Serve one event. Raises gr.Error if it fails, and logs unexpected failures."""
        try:
            if block_fn.fn is None:
                raise gr.Error("This event runs in the browser alone.")
            return await super().process_api(block_fn, *args, **options)
        except gr.Error as error:
            raise _failure(422, str(error.message)) from None
        except SpecvizError as error:
            raise _failure(422, str(error)) from None
        except Exception as error:
            log.error("an event failed", exc_info=error)
            raise _failure(500, FAILED) from None


def _check(block: Any, value: Any) -> None:
    """Raise gr.Error for a lone surrogate, which no answer can contain; a file, which gradio would fetch; None or a list for a dropdown."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        name = getattr(block, "label", None) or "The text"
        raise gr.Error(f"{name} has half a character in it (a lone surrogate): leave that out.") from None
    if compat.has_file([value]):
        raise gr.Error("No event here takes a file.")
    if isinstance(block, gr.Dropdown) and (value is None or isinstance(value, list)):
        raise gr.Error("One of the choices must be given.")


def _failure(status: int, sentence: str) -> gr.Error:
    failing = failed_status.get()
    if failing is not None:
        failing["status"] = status
    return gr.Error(sentence[:MAX_SENTENCE], print_exception=False)
