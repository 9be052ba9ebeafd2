"""The guard: limits requests, refuses those that neither the page nor an honest client sends, and turns each failure into one sentence.

`Guard` is ASGI middleware around gradio's app. Without it, gradio serves more addresses than this page needs, and its errors repeat
what was sent. `GuardedBlocks` are Blocks whose events fail with one sentence.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, cast

import gradio as gr
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specviz.app.clients import Clients
from specviz.app.hosts import EVERY_HOST, HostCheck, Hosts, path_of
from specviz.app.openai_errors import OpenAIErrors
from specviz.app.page_cache import PageCache
from specviz.compat import gradio as compat
from specviz.compat.gradio_answers import UNREAD_SECONDS
from specviz.errors import SpecvizError, quoted

log = logging.getLogger(__name__)

MAX_BODY = 2_000_000
"""Largest body of a request, in bytes. Clients send data only in bodies, and a body is discarded with its request: nothing becomes a file."""
SMALL_BODY = 64_000
"""This many bytes of each body do not count towards `MAX_BODIES`, so that large bodies never keep small ones out."""
MAX_BODIES = 64_000_000
"""Most bytes of all bodies together, of requests that are arriving or being answered."""
BODY_SECONDS = 60
"""Longest time in which a body may arrive."""

FAILED = "Something broke inside SpecViz and this was not done; the next request should work."
MAX_SENTENCE = 300
"""Most characters of the answer to a failed event."""

failed_status: ContextVar[dict[str, int] | None] = ContextVar("failed_status", default=None)
"""Holds the HTTP status for the answer to a failed event, as {"status": …}."""
TOO_LARGE = f"A request may have {MAX_BODY} bytes here."
NO_ANSWER = (
    f"There is no such answer here: it was fetched before, or nobody read it for {UNREAD_SECONDS:g} s."
)
UNFIT = "This server cannot read the request; nothing was done."

_OWN_ADDRESSES = (
    *(r"agents\.md", "healthz", "metrics", "lessons", "rule", "class(/(now|invite))?"),
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
_REFUSED_CODING = re.compile(rb"q=0(\.0{0,3})?", re.IGNORECASE)
_RANGE = re.compile(r"bytes=[0-9]{0,18}-[0-9]{0,18}", re.ASCII)


def guarded(routes: Sequence[BaseRoute], hosts: Hosts = EVERY_HOST) -> dict[str, Any]:
    """Options of gradio's app: the guard, and `routes`, for `hosts`. These come before gradio's own routes, which match any path."""
    return {
        "routes": routes,
        "middleware": [
            Middleware(OpenAIErrors),
            Middleware(Clients),
            Middleware(Guard),
            Middleware(HostCheck, hosts),
            Middleware(PageCache),
        ],
        "exception_handlers": {RequestValidationError: _unfit},
    }


class Guard:
    """ASGI middleware: refuses unknown addresses, stops reading at its limits, and turns failures into answers."""

    def __init__(self, app: ASGIApp) -> None:
        """Wrap `app`."""
        self._app = app
        self._held = _Held()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if refusal := _refused(scope):
            await refusal(scope, receive, send)
            return
        exchange = _Exchange(scope, receive, send, self._held)
        token = failed_status.set(exchange.failing)
        try:
            await self._app(scope, exchange.receive, exchange.send)
            exchange.check()
        except Exception as error:
            await exchange.fail(error)
        finally:
            exchange.release()
            failed_status.reset(token)


class _Held:
    """The number of bytes, of all bodies, that count towards `MAX_BODIES`."""

    def __init__(self) -> None:
        self.bytes = 0


class _Exchange:
    def __init__(self, scope: Scope, receive: Receive, send: Send, held: _Held) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._held = held
        self._length = 0
        self._whole = False
        self._ends: float | None = None
        self._broken: _BodyError | None = None
        self._begun = False
        self.failing: dict[str, int] = {}

    async def receive(self) -> Message:
        if self._whole:
            return await self._receive()
        try:
            return self._count(await self._next())
        except _BodyError as error:
            self._broken = error
            raise

    def _count(self, message: Message) -> Message:
        self._whole = not message.get("more_body", False)
        before = self._counted
        self._length += len(message.get("body", b""))
        self._held.bytes += self._counted - before
        if self._length > MAX_BODY:
            raise _BodyError(413, TOO_LARGE)
        if self._held.bytes > MAX_BODIES:
            raise _BodyError(503, "Too much is being sent to this server at once: try again in a moment.")
        return message

    async def _next(self) -> Message:
        if self._scope["method"] in ("GET", "HEAD"):
            return await self._receive()  # starlette calls this to check for a disconnect, without waiting
        now = asyncio.get_running_loop().time()
        self._ends = self._ends or now + BODY_SECONDS
        try:
            return await asyncio.wait_for(self._receive(), self._ends - now)
        except (TimeoutError, asyncio.TimeoutError):
            sentence = f"The body of a request must arrive within {BODY_SECONDS} s: send it again."
            raise _BodyError(408, sentence) from None

    @property
    def _counted(self) -> int:
        return max(0, self._length - SMALL_BODY)

    def release(self) -> None:
        """Stop counting this body."""
        self._held.bytes -= self._counted
        self._length = 0

    def check(self) -> None:
        """Raise the error that stopped the reading of the body, if the app has swallowed it."""
        if self._broken and not self._begun:
            raise self._broken

    async def send(self, message: Message) -> None:
        if self._broken and not self._begun:
            return  # FastAPI turns any error while reading a body into "cannot be parsed"; drop that answer
        if message["type"] == "http.response.start":
            self._begun = True
            if message["status"] == 500 and _EVENT.search(self._scope["path"]):
                message = {**message, **self.failing}
        elif message.get("body") == compat.NO_ANSWER:
            message = {**message, "body": compat.NO_ANSWER.replace(b"404: Not Found", NO_ANSWER.encode())}
        await self._send(message)

    async def fail(self, error: Exception) -> None:
        """Answer in place of gradio, or end the answer that gradio has begun."""
        if self._begun:
            # For an unknown session, gradio raises HTTPException when the stream has begun: too late for an error answer.
            if not isinstance(error.__cause__ or error, HTTPException | ClientDisconnect):
                log.warning("an answer broke off", exc_info=error)
            with contextlib.suppress(Exception):
                await self._send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        if isinstance(error, ClientDisconnect):
            return
        if isinstance(error, _BodyError):
            answer = _answer(error.status, str(error))
        else:
            misnamed = _misnamed(error, self._scope["path"])
            if not misnamed and not isinstance(error, HTTPException):
                log.warning("a request failed in gradio", exc_info=error)
            answer = _answer(400, misnamed or UNFIT)
        await answer(self._scope, self._receive, self._send)


def _misnamed(error: Exception, path: str) -> str:
    """The sentence about an unknown endpoint, or an unknown or missing argument, if that is why gradio failed; otherwise ""."""
    if (found := _CALL.search(path)) and compat.lacks_endpoint(error, found[1]):
        name = quoted(found[1]).encode("ascii", "replace").decode()
        return f"There is no endpoint {name} here; {compat.API_PREFIX}/info lists those that there are."
    if not isinstance(error, TypeError):
        return ""
    if found := _UNKNOWN.match(str(error)):
        name = quoted(found[1]).encode("ascii", "replace").decode()
        return f"There is no argument {name} here: leave it out; {compat.API_PREFIX}/info lists those that there are."
    if found := _MISSING.match(str(error)):
        return f"The argument {found[1][:60]} is missing: give it a value."
    return ""


class _BodyError(Exception):
    """Reading of a body was stopped; `status` is the status to answer."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def _refused(scope: Scope) -> Response | None:
    """The answer to a request that gradio must not see, or None."""
    path = path_of(scope)
    if not _ANSWERED.fullmatch(path) or "\0" in path:
        return JSONResponse({"detail": "Not Found"}, 404)
    headers = Headers(scope=scope)
    for name, pattern in (("host", _HOST), ("x-forwarded-host", _HOST), ("x-forwarded-proto", _SCHEME)):
        parts = [part.strip() for value in headers.getlist(name) for part in value.split(",")]
        if not all(map(pattern.fullmatch, parts)):
            return _answer(400, f"The header {name} is malformed.")
    # Gradio fails on other forms of these fields, and it compresses even for clients that refuse that by "gzip;q=0".
    scope["headers"] = [
        (name, _accepted(value) if name == b"accept-encoding" else value)
        for name, value in scope["headers"]
        if name != b"x-gradio-server"
        and not (name == b"range" and not _RANGE.fullmatch(value.decode("latin-1")))
    ]
    length = headers.get("content-length", "0")
    if not length.isdecimal() or int(length[:20]) > MAX_BODY:
        return _answer(413, TOO_LARGE)
    return None


def _accepted(codings: bytes) -> bytes:
    """The Accept-Encoding header without the codings that it refuses (q=0)."""
    parts = [(each, each.partition(b";")[2].strip()) for each in codings.split(b",")]
    return b",".join(each for each, weight in parts if not _REFUSED_CODING.fullmatch(weight))


def _answer(status: int, sentence: str) -> JSONResponse:
    return JSONResponse(
        {"detail": sentence}, status, {"Connection": "close"} if status in (408, 413, 503) else None
    )


async def _unfit(request: Request, error: Exception) -> Response:
    """Answer 422 and say what is wrong with a body or a query, without repeating its content."""
    found = cast(RequestValidationError, error).errors()[:3]
    said = [f"{'.'.join(str(part)[:40] for part in each['loc'])}: {each['type']}" for each in found]
    sentence = f"The request is not what this address takes ({'; '.join(said)})."
    return _answer(422, sentence.encode("ascii", "replace").decode())


class GuardedBlocks(compat.LastingBlocks):
    """Blocks whose events refuse values that no control of the page sends."""

    async def preprocess_data(self, block_fn: Any, inputs: list[Any], *more: Any, **options: Any) -> Any:
        """The values for an event's function. Raises gr.Error if they do not fit the event."""
        try:
            if len(inputs) != (wanted := len(block_fn.inputs)):
                raise gr.Error(
                    f"{len(inputs)} values came and {wanted} are wanted: give all, or arguments by name."
                )
            for block, value in zip(block_fn.inputs, inputs, strict=True):
                _check_value(block, value)
                _check_choice(block, value)
            return await super().preprocess_data(block_fn, inputs, *more, **options)
        except gr.Error:
            raise
        except Exception:
            raise _failure(422, "The values sent do not fit this event.") from None

    async def process_api(self, block_fn: Any, *args: Any, **options: Any) -> dict[str, Any]:
        """Serve one event. Raises gr.Error if it fails, and logs unexpected failures."""
        try:
            if compat.runs_in_browser(block_fn):
                raise gr.Error("This event runs in the browser alone.")
            if compat.is_selection(block_fn) and compat.selection(options.get("event_data")) is None:
                raise gr.Error("The event must say what was chosen.")
            return await super().process_api(block_fn, *args, **options)
        except gr.Error as error:
            raise _failure(422, str(error.message)) from None
        except SpecvizError as error:
            raise _failure(422, str(error)) from None
        except Exception as error:
            log.error("an event failed", exc_info=error)
            raise _failure(500, FAILED) from None


def _check_value(block: Any, value: Any) -> None:
    """Refuse lone surrogates, which no answer can contain, and files, which gradio would fetch."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        name = getattr(block, "label", None) or "The text"
        raise gr.Error(f"{name} has half a character in it (a lone surrogate): leave that out.") from None
    if compat.has_file([value]):
        raise gr.Error("No event here takes a file.")


def _check_choice(block: Any, value: Any) -> None:
    """Refuse a missing choice and a list of choices. Gradio accepts them, but no control of the page sends them."""
    one = isinstance(block, gr.Dropdown | gr.Radio | gr.Dataset) and not getattr(block, "multiselect", False)
    if one and (value is None or isinstance(value, list)):
        raise gr.Error("One of the choices must be given.")


def _failure(status: int, sentence: str) -> gr.Error:
    failing = failed_status.get()
    if failing is not None:
        failing["status"] = status
    return gr.Error(sentence[:MAX_SENTENCE], print_exception=False)
