"""Routes for OpenAI's clients: /v1/models, /v1/completions and /v1/chat/completions. They use the service that the page uses."""

from __future__ import annotations

import contextlib
import json
import secrets
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, cast

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from specviz import environment
from specviz.app.api import follow
from specviz.app.clients import client_address
from specviz.app.openai_answer import Answer, Piece, joined
from specviz.app.openai_request import CHAT, TEXT, Completion, blaming, read
from specviz.app.refusals import OPENAI_PATH, ParameterError, openai_error, refusal
from specviz.engine.events import Loading, Waiting
from specviz.schema.trace import Run
from specviz.serving.limits import Visitor
from specviz.serving.service import Service

_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_BEAT = ": waiting\n\n"
"""A comment in an event stream. It tells the client and proxies that the server is alive."""

Endpoint = Callable[[Request], Awaitable[Response]]
Item = Piece | Waiting
"""What `_served` yields: the next piece of the text, or a `Waiting` event while the call waits."""


def openai_routes(service: Service) -> list[BaseRoute]:
    """The routes. If this server does not serve OpenAI's clients, each route answers 404 with the sentence of `openai_refusal`."""
    limits, began = service.limits, int(time.time())  # noqa: TID251  (a date)
    threads = CapacityLimiter(limits.max_sequences + limits.queue)

    def usable() -> list[dict[str, Any]]:
        keys = [state.spec.key for state in service.states() if state.usable]
        return [{"id": key, "object": "model", "created": began, "owned_by": "specviz"} for key in keys]

    async def models(request: Request) -> Response:
        found, wanted = await to_thread.run_sync(usable), request.path_params.get("model")
        if wanted is None:
            return JSONResponse({"object": "list", "data": found})
        for each in found:
            if each["id"] == wanted:
                return JSONResponse(each)
        raise ParameterError(
            f"There is no such model here; {OPENAI_PATH}models lists those that can be used.", "model", 404
        )

    def completions(kinds: dict[str, Any]) -> Endpoint:
        async def complete(request: Request) -> Response:
            # In a thread, since reading a request may import torch.
            asked = await to_thread.run_sync(read, await request.body(), kinds, limits, limiter=threads)
            answer = Answer(asked)
            items = _served(
                service, asked, answer, Visitor(secrets.token_hex(), client_address(request.client))
            )
            with contextlib.ExitStack() as open_items:
                open_items.enter_context(contextlib.closing(cast(Any, items)))
                told = _told(request, items, threads)
                if not asked.streams:
                    piece = joined([item async for item in told if isinstance(item, Piece)])
                    # Without a run, the client has disconnected.
                    return JSONResponse(answer.whole(piece), headers=_HEADERS) if piece.run else Response()
                # Wait for the models and the first item, so that a refused call gets an error status instead of a stream.
                while isinstance(first := await anext(told, None), Loading):
                    pass
                open_items.pop_all()
                return _Events(_lines(answer, first, told), items)

        return complete

    return [
        Route(f"{OPENAI_PATH}models", _answered(models)),
        Route(f"{OPENAI_PATH}models/{{model}}", _answered(models)),
        Route(f"{OPENAI_PATH}completions", _answered(completions(TEXT)), methods=["POST"]),
        Route(f"{OPENAI_PATH}chat/completions", _answered(completions(CHAT)), methods=["POST"]),
    ]


def openai_refusal() -> str:
    """The reason why this server does not serve OpenAI's clients, as a sentence; "" if it serves them."""
    if environment.on_zero_gpu():
        return "OpenAI's clients cannot use this server, which borrows a GPU for each visitor of its page: use the page, or gradio_client."
    is_on = environment.OPENAI.value()
    if not environment.on_space() if is_on is None else is_on:
        return ""
    return f"This server does not serve OpenAI's clients; its owner can set {environment.OPENAI.name} to 1."


def _answered(endpoint: Endpoint) -> Endpoint:
    """Wrap an endpoint. If `openai_refusal` returns a sentence, answer with the sentence; answer errors in OpenAI's format."""

    async def answered(request: Request) -> Response:
        if reason := openai_refusal():
            return refusal(request.scope, 404, reason)
        try:
            return await endpoint(request)
        except Exception as error:
            return JSONResponse(*openai_error(error))

    return answered


def _served(service: Service, asked: Completion, answer: Answer, visitor: Visitor) -> Iterator[Item]:
    """Serve a call. A few times a second, yields a `Waiting` event or the next piece. Closing the generator ends the run."""
    runs: list[Run | None] = [None]
    steps = follow(service, asked.model, [asked.request], runs, visitor, threading.Event())
    with blaming(asked.prompt), contextlib.closing(cast(Any, steps)):
        for waiting in steps:
            yield answer.text.take(run) if (run := runs[0]) else waiting or Piece()
            if answer.text.is_stopped:
                return
    if run := runs[0]:
        yield answer.text.take(run, ends=True)


async def _told(request: Request, items: Iterator[Item], threads: CapacityLimiter) -> AsyncIterator[Item]:
    """Yield the items, each fetched in a thread, until the client disconnects."""
    while (item := await to_thread.run_sync(next, items, None, limiter=threads)) is not None:
        yield item
        if await request.is_disconnected():
            return


async def _lines(answer: Answer, item: Item | None, items: AsyncIterator[Item]) -> AsyncIterator[str]:
    """The answer as server-sent events. `item` is the first item; `items` has the further items. An error also becomes an event."""
    for start in answer.starts():
        yield _line(start)
    try:
        while item is not None:
            if isinstance(item, Piece) and (item.text or item.tokens or item.finish_reason):
                for chunk in answer.chunks(item):
                    yield _line(chunk)
            else:
                yield _BEAT
            item = await anext(items, None)
    except Exception as error:
        yield _line(openai_error(error)[0])
    yield "data: [DONE]\n\n"


def _line(content: dict[str, Any]) -> str:
    return f"data: {json.dumps(content, ensure_ascii=False, allow_nan=False)}\n\n"


class _Events(StreamingResponse):
    """A stream of server-sent events that closes `items` when it ends."""

    def __init__(self, lines: AsyncIterator[str], items: Iterator[Item]) -> None:
        super().__init__(lines, headers=_HEADERS, media_type="text/event-stream")
        self._items: Any = items

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with contextlib.closing(self._items):
            await super().__call__(scope, receive, send)
