"""Clients: their addresses, which the limits need, and whether an MCP client still waits for its tool call.

Behind a proxy that is listed in FORWARDED_ALLOW_IPS, uvicorn takes addresses from X-Forwarded-For.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import threading
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from specviz.compat.gradio import TOOLS_PATH

_HEADER = b"x-specviz-client"
_CALL = "specviz_call"
"""Key in a request's `state` under which the event for `call_ended` is stored."""
_KEY = secrets.token_hex().encode()
"""Proves that a request with `_HEADER` comes from this server itself."""
_ENDED = threading.Event()
_ENDED.set()
_IPV6_NETWORK = 64
"""Prefix length of a client's network in IPv6; the client can choose the other bits."""


def client_address(client: Any) -> str:
    """The address of a request's `client` as `network_of` returns it; "" if unknown."""
    return network_of(str(client.host)) if client else ""


def network_of(host: str) -> str:
    """Return the network of an IPv6 address; for an IPv4-mapped IPv6 address, the IPv4 address. Returns other texts unchanged."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    return str(address.ipv4_mapped or ipaddress.ip_network((address, _IPV6_NETWORK), strict=False))


def call_ended(request: Any) -> threading.Event:
    """An event that is set when the MCP client no longer waits for its tool call. If `request` is no tool call, the event is never set."""
    return getattr(getattr(request, "state", None), _CALL, None) or threading.Event()


class Clients:
    """ASGI middleware for MCP tool calls. To serve a tool call, gradio sends a second request to itself, from its own address.

    The middleware adds a header to the tool call. Gradio copies the header, so that the second request gets the client's address and the
    event for `call_ended`.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._calls: dict[bytes, threading.Event] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request. The second request of a tool call gets the MCP client's address."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sent = next((value for name, value in scope["headers"] if name == _HEADER), b"")
        scope["headers"] = [each for each in scope["headers"] if each[0] != _HEADER]
        key, call, address = (*sent.split(b" "), b"", b"")[:3]
        if hmac.compare_digest(key, _KEY):
            scope["client"] = (address.decode("ascii"), 0)
            scope.setdefault("state", {})[_CALL] = self._calls.get(call, _ENDED)
        elif TOOLS_PATH in scope["path"] and scope["client"]:
            call = secrets.token_hex().encode()
            address = scope["client"][0].encode("ascii", "replace")
            scope["headers"].append((_HEADER, b" ".join((_KEY, call, address))))
            self._calls[call] = ended = threading.Event()
            try:
                await self._app(scope, receive, send)
            finally:
                del self._calls[call]
                ended.set()
            return
        await self._app(scope, receive, send)
