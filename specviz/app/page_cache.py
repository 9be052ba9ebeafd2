"""Caches the compressed page, one copy for each address under which the server is reached.

Gradio rebuilds the page for every visitor: 740 kB, and 50 ms in which nobody else is answered. HTTP caching does not help, because
each visitor's browser requests the page for the first time.
"""

from __future__ import annotations

import gzip
from collections import OrderedDict

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST = 4
"""Most cached addresses. There is a limit because clients can invent addresses."""
_ADDRESS = ("host", "x-forwarded-host", "x-forwarded-proto", "x-gradio-server")
"""Headers with the address under which the server was reached. Gradio writes it into the page."""
_PARAMETERS = (b"deep_link", b"page", b"all_endpoints")
"""Query parameters that change the page."""


class PageCache:
    """ASGI middleware that answers "/" with gradio's earlier answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._pages: OrderedDict[tuple[str | None, ...], Response] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or not _is_for_page(scope):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        key = (scope["scheme"], scope.get("root_path"), *map(headers.get, _ADDRESS))
        if key not in self._pages:
            answer: list[Message] = []

            async def keep(message: Message) -> None:
                answer.append(message)

            await self._app(scope, receive, keep)
            start = Headers(raw=answer[0]["headers"])
            if answer[0]["status"] != 200 or "set-cookie" in start or "content-encoding" in start:
                for message in answer:
                    await send(message)
                return
            body = gzip.compress(b"".join(message.get("body", b"") for message in answer[1:]), 6)
            packed = {"content-encoding": "gzip", "content-length": str(len(body)), "vary": "Accept-Encoding"}
            self._pages[key] = Response(body, headers={**start, **packed})
            while len(self._pages) > MOST:
                self._pages.popitem(last=False)
        self._pages.move_to_end(key)
        await self._pages[key](scope, receive, send)


def _is_for_page(scope: Scope) -> bool:
    """Whether the request is for the page that is the same for everybody. If visitors sign in, their pages contain their names."""
    app = scope.get("app")
    signs_in = getattr(app, "auth", None) is not None or getattr(app, "auth_dependency", None) is not None
    is_usual = not any(name in scope["query_string"] for name in _PARAMETERS)
    takes_gzip = "gzip" in Headers(scope=scope).get("accept-encoding", "")
    return scope["method"] == "GET" and scope["path"] == "/" and is_usual and takes_gzip and not signs_in
