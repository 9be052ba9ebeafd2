"""What the server takes from strangers: which addresses it answers, how much it reads, and what it says of a failure.

Around gradio's own app, which answers more than this page needs, and tells failures with what was sent. Knows
gradio's addresses; knows nothing of the page, its events and the service.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
from contextvars import ContextVar
from pathlib import Path
from typing import Any, cast

import gradio as gr
import gradio.state_holder
from fastapi.exceptions import RequestValidationError
from gradio.route_utils import API_PREFIX
from gradio.state_holder import SessionState
from gradio.utils import get_upload_folder, is_in_or_equal
from gradio_client.utils import traverse
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specviz.errors import SpecvizError

log = logging.getLogger(__name__)

MAX_BODY = 2_000_000
"""Bytes of a request, other than of an upload."""
MAX_UPLOAD_BODY = 9_000_000
"""Bytes of an upload, whatever else is in it than the file."""

UNFIT = "This server cannot make sense of the request; nothing was done."
BROKEN = "Something broke inside SpecViz and this was not done; the next request should work."

# Of gradio's addresses those that a page, a client or an assistant needs. What is left out: recording the screen,
# fetching from other servers, the editor, other people's run histories, and links that keep a session on disk.
_PAGE = r"|config|theme\.css|favicon\.ico|manifest\.json|robots\.txt|pwa_icon|assets/.+|static/.+|svelte/.+|mcp(/.*)?"
_API = (
    r"info|openapi\.json|app_id|login_check|user|startup-events|theme\.css|reset|cancel|queue/(join|data|status)|"
    r"heartbeat/[^/]+|run/[^/]+|api/[^/]+|call/[^/]+(/[^/]+){0,2}|upload|upload_progress|mcp(/.*)?|"
    r"file=(?!\w{2,}:).*"
)
_ANSWERED = re.compile(rf"/({_PAGE}|healthz|metrics|{API_PREFIX.strip('/')}/({_API}))/?", re.DOTALL)
_HOST = re.compile(r"[\w.-]{1,253}(:[0-9]{1,5})?|\[[0-9a-fA-F:.]{2,45}\](:[0-9]{1,5})?", re.ASCII)
_SCHEME = re.compile(r"https?|wss?", re.ASCII)
_RANGE = re.compile(r"bytes=[0-9]{0,18}-[0-9]{0,18}", re.ASCII)
_QUEUED = re.compile(r"/(run|api)/[^/]+/?$")

_failing: ContextVar[dict[str, int] | None] = ContextVar("failing", default=None)
"""The status that a failed event's answer is to have, told by the page to the guard around it."""


def guarded(app_kwargs: dict[str, Any] | None = None) -> dict[str, Any]:
    """`app_kwargs` for gradio's `launch`, with the guard around the app."""
    given = app_kwargs or {}
    return given | {
        "middleware": [Middleware(Guard), *given.get("middleware", ())],
        "exception_handlers": {RequestValidationError: _unfit} | given.get("exception_handlers", {}),
    }


class Session(SessionState):
    """What gradio keeps of a session, without what it keeps for links to a session, which are not served here.

    That would be every value that the page was ever given in it: prompts, traces, up to a megabyte for each visitor.
    """

    @property
    def config_values(self) -> dict[int, Any]:
        """Nothing; what is put in is gone."""
        return {}

    @config_values.setter
    def config_values(self, values: dict[int, Any]) -> None:
        pass

    def _update_value_in_config(self, key: int, value: Any) -> None:
        pass


gradio.state_holder.SessionState = Session  # type: ignore[misc]


class GuardedBlocks(gr.Blocks):
    """Blocks whose events fail in a sentence: nothing of what was sent is printed or told to anyone."""

    def get_block_name(self) -> str:
        """That of the class above: the browser knows no other."""
        return "blocks"

    def queue(self, *args: Any, **options: Any) -> GuardedBlocks:
        """gradio's queue, which goes on where gradio's own would stop for everybody: at a session that has just gone."""
        super().queue(*args, **options)
        # Figures for a page that is not served here: after every event a table of the last ten thousand.
        self._queue.ANALYTICS_MAX_EVENTS = 1
        self._queue.compute_analytics_summary = lambda records: {}  # type: ignore[method-assign]
        send = self._queue.send_message

        def send_if_there(event: Any, message: Any) -> None:
            try:
                send(event, message)
            except KeyError:
                event.alive = False

        self._queue.send_message = send_if_there  # type: ignore[method-assign, assignment]
        return self

    async def preprocess_data(self, block_fn: Any, inputs: list[Any], *more: Any, **options: Any) -> Any:
        """The values for an event's function.

        Raises:
            gr.Error: they are not what the event takes.
        """
        try:
            _refuse(inputs)
            for block, value in zip(block_fn.inputs, inputs, strict=False):
                _check_given(block, value)
            return await super().preprocess_data(block_fn, inputs, *more, **options)
        except gr.Error:
            raise
        except Exception:
            raise _told(422, "The values sent do not fit this event.") from None

    async def process_api(self, block_fn: Any, *args: Any, **options: Any) -> dict[str, Any]:
        """Serve one event.

        Raises:
            gr.Error: it failed; a failure of our own is in the log.
        """
        try:
            if block_fn.fn is None:
                raise gr.Error("This event is the browser's own.")
            _check_chosen(block_fn, options.get("event_data"))
            return await super().process_api(block_fn, *args, **options)
        except gr.Error as error:
            raise _told(422, str(error.message)[:300]) from None
        except SpecvizError as error:
            raise _told(422, str(error)[:300]) from None
        except Exception as error:
            log.error("an event failed", exc_info=error)
            raise _told(500, BROKEN) from None


def _refuse(inputs: list[Any]) -> None:
    """What gradio would take and then break on, or do for a stranger.

    Raises:
        gr.Error: there is half a character in them, which no answer can repeat; or a file that was not uploaded: gradio
            fetches one from an address, and takes those that it serves for the page.
    """
    try:
        json.dumps(inputs, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise gr.Error("The text has half a character in it (a lone surrogate).") from None
    traverse(inputs, _check_file, lambda part: isinstance(part, dict) and "path" in part)


def _check_file(file: dict[str, Any]) -> dict[str, Any]:
    path = Path(str(file["path"]))
    if not (path.is_absolute() and path.is_file() and is_in_or_equal(path, get_upload_folder())):
        raise gr.Error("A file must be uploaded before it is used.")
    return file


def _check_given(block: Any, value: Any) -> None:
    """That one of the choices is given: gradio lets none, and a list, through, which no control of the page sends."""
    one = isinstance(block, gr.Dropdown | gr.Radio | gr.Dataset) and not getattr(block, "multiselect", False)
    if one and (value is None or isinstance(value, list)):
        raise gr.Error("One of the choices must be given.")


def _check_chosen(block_fn: Any, event: gr.EventData | None) -> None:
    """That whoever says that something was chosen says what."""
    said = event._data if event is not None else None
    told = isinstance(said, dict) and {"index", "value"} <= said.keys()
    if not told and any(name == "select" for _, name in block_fn.targets):
        raise gr.Error("What was chosen must be said.")


def _told(status: int, sentence: str) -> gr.Error:
    failing = _failing.get()
    if failing is not None:
        failing["status"] = status
    return gr.Error(sentence, print_exception=False)


class Guard:
    """ASGI middleware: refuses what nobody needs, stops reading at a limit, and turns failures into answers."""

    def __init__(self, app: ASGIApp) -> None:
        """Around `app`."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if refusal := _refused(scope):
            await refusal(scope, receive, send)
            return
        answer = _Answer(scope, receive, send)
        failing: dict[str, int] = {}
        token = _failing.set(failing)
        try:
            await self._app(scope, answer.receive, lambda message: answer.send(message, failing))
        except Exception as error:
            await answer.fail(error)
        finally:
            _failing.reset(token)


class _Answer:
    """One request as it is read and answered."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._left = _most(scope)
        self._begun = False

    async def receive(self) -> Message:
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise _TooLargeError
        return message

    async def send(self, message: Message, failing: dict[str, int]) -> None:
        if message["type"] == "http.response.start":
            self._begun = True
            # gradio answers 500 to whatever went wrong in an event.
            if message["status"] == 500 and "status" in failing and _QUEUED.search(self._scope["path"]):
                message = {**message, "status": failing["status"]}
        await self._send(message)

    async def fail(self, error: Exception) -> None:
        """Answer in gradio's stead."""
        if not self._begun:
            status, sentence = 400, UNFIT
            if isinstance(error, _TooLargeError):
                status, sentence = 413, f"A request may have {_most(self._scope)} bytes here."
            elif not isinstance(error, HTTPException):
                log.warning("a request failed in gradio", exc_info=error)
            await _says(status, sentence)(self._scope, self._receive, self._send)
        else:
            if not isinstance(
                error, HTTPException
            ):  # gradio ends the stream of a session that it does not know so
                log.warning("an answer broke off", exc_info=error)
            with contextlib.suppress(Exception):
                await self._send({"type": "http.response.body", "body": b"", "more_body": False})


class _TooLargeError(Exception):
    """The body is larger than it may be."""


def _most(scope: Scope) -> int:
    return MAX_UPLOAD_BODY if scope["path"].rstrip("/").endswith("/upload") else MAX_BODY


def _refused(scope: Scope) -> Response | None:
    """The answer to a request that gradio is not to see, if it is one."""
    path = scope["path"].removeprefix(scope.get("root_path", "").rstrip("/"))
    if not _ANSWERED.fullmatch(path) or "\0" in path:
        return JSONResponse({"detail": "Not Found"}, 404)
    headers: dict[bytes, list[bytes]] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name, []).append(value)
    for name, pattern in ((b"host", _HOST), (b"x-forwarded-host", _HOST), (b"x-forwarded-proto", _SCHEME)):
        for value in headers.get(name, ()):
            if not all(pattern.fullmatch(part.strip()) for part in value.decode("latin-1").split(",")):
                return _says(400, f"The header {name.decode()} is not what it should be.")
    # Of these gradio's own proxies and readers expect a certain form, and break on any other.
    scope["headers"] = [
        (name, value)
        for name, value in scope["headers"]
        if name != b"x-gradio-server"
        and not (name == b"range" and not _RANGE.fullmatch(value.decode("latin-1")))
    ]
    lengths = headers.get(b"content-length", [b"0"])
    if not lengths[0].isdigit() or int(lengths[0][:20]) > _most(scope):
        return _says(413, f"A request may have {_most(scope)} bytes here.")
    return None


def _says(status: int, sentence: str) -> JSONResponse:
    return JSONResponse({"detail": sentence}, status, {"Connection": "close"} if status == 413 else None)


async def _unfit(request: Request, error: Exception) -> Response:
    """What is wrong with a body or a query, without repeating any of it."""
    found = cast(RequestValidationError, error).errors()[:3]
    said = [f"{'.'.join(str(part)[:40] for part in each['loc'])}: {each['type']}" for each in found]
    return _says(
        422,
        f"The request is not what this address takes ({'; '.join(said)}).".encode(
            "ascii", "replace"
        ).decode(),
    )
