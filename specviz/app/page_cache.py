"""The page as it is served: made once for each address by which the server is reached, and kept, also compressed.

Gradio makes it anew for every visitor: it copies the page's whole description and goes through it for addresses, which takes 50 ms in
which nobody else is answered, and sends 740 KB. Knows HTTP; knows nothing of what is on the page.
"""

from __future__ import annotations

import gzip
from collections import OrderedDict
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST = 4
"""Addresses for which it is kept: a stranger may make up others."""
_ADDRESS = ("host", "x-forwarded-host", "x-forwarded-proto", "x-gradio-server")
"""Headers that say by which address the server was asked: gradio writes that into the page."""

_PARAMETERS = (b"deep_link", b"page", b"all_endpoints")
"""What gradio makes another page of."""

Key = tuple[str | None, ...]


@dataclass(frozen=True)
class _Page:
    start: Message
    body: bytes
    compressed: bytes

    async def send(self, send: Send, accepts_gzip: bool) -> None:
        headers = MutableHeaders(raw=list(self.start["headers"]))
        headers["vary"] = "Accept-Encoding"
        body = self.body
        if accepts_gzip:
            body, headers["content-encoding"] = self.compressed, "gzip"
        headers["content-length"] = str(len(body))
        await send({**self.start, "headers": headers.raw})
        await send({"type": "http.response.body", "body": body})


class PageCache:
    """ASGI middleware that answers "/" from what gradio answered before, for the same address."""

    def __init__(self, app: ASGIApp) -> None:
        """Around `app`."""
        self._app = app
        self._pages: OrderedDict[Key, _Page] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or not _is_for_page(scope):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        key = (scope["scheme"], scope.get("root_path"), *map(headers.get, _ADDRESS))
        if not (page := self._pages.get(key)):
            page = await self._made(scope, receive, send)
            if page is None:
                return
            self._pages[key] = page
            while len(self._pages) > MOST:
                self._pages.popitem(last=False)
        self._pages.move_to_end(key)
        await page.send(send, "gzip" in headers.get("accept-encoding", ""))

    async def _made(self, scope: Scope, receive: Receive, send: Send) -> _Page | None:
        """What gradio answers; None where that is not to be kept and has been sent."""
        answer: list[Message] = []

        async def keep(message: Message) -> None:
            answer.append(message)

        await self._app(scope, receive, keep)
        start, body = answer[0], b"".join(message.get("body", b"") for message in answer[1:])
        names = {name for name, _ in start["headers"]}
        if start["status"] != 200 or names & {b"set-cookie", b"content-encoding"}:
            for message in answer:
                await send(message)
            return None
        return _Page(start, body, gzip.compress(body, 6))


def _is_for_page(scope: Scope) -> bool:
    """Whether the page is asked for, as it is for everybody: where visitors sign in, it has their names."""
    app = scope.get("app")
    signs_in = getattr(app, "auth", None) is not None or getattr(app, "auth_dependency", None) is not None
    usual = not any(name in scope["query_string"] for name in _PARAMETERS)
    return scope["method"] == "GET" and scope["path"] == "/" and usual and not signs_in
