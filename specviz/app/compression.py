"""Compresses the page: 1.5 MB of HTML, which gradio sends uncompressed."""

from __future__ import annotations

from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from specviz.app.refusals import path_of


class CompressedPage:
    """ASGI middleware: starlette's gzip for "/" only. Other answers are small, streams, or already compressed."""

    def __init__(self, app: ASGIApp) -> None:
        self._app, self._compressed = app, GZipMiddleware(app, compresslevel=5)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        is_page = scope["type"] == "http" and path_of(scope) == "/"
        await (self._compressed if is_page else self._app)(scope, receive, send)
