"""Addresses of clients, for the limits. Behind a proxy that FORWARDED_ALLOW_IPS names, uvicorn takes them from X-Forwarded-For."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from specviz.compat.gradio import TOOLS_PATH

_HEADER = b"x-specviz-client"
_KEY = secrets.token_hex().encode()
"""Proves that a request with `_HEADER` comes from this server itself."""
_IPV6_NETWORK = 64
"""Bits of an IPv6 address that identify a client's network; its holder chooses the others."""


def client_address(client: Any) -> str:
    """The address of a request's `client`; "" if unknown."""
    return network_of(str(client.host)) if client else ""


def network_of(host: str) -> str:
    """An address, of IPv6 its network."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    return str(address.ipv4_mapped or ipaddress.ip_network((address, _IPV6_NETWORK), strict=False))


class Clients:
    """ASGI middleware: keeps an assistant's address while gradio sends its call to itself, with the headers of the first request."""

    def __init__(self, app: ASGIApp) -> None:
        """Wrap `app`."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, with the client's own address in the scope."""
        if scope["type"] == "http":
            sent = next((value for name, value in scope["headers"] if name == _HEADER), b"")
            scope["headers"] = [each for each in scope["headers"] if each[0] != _HEADER]
            key, _, address = sent.partition(b" ")
            if hmac.compare_digest(key, _KEY):
                scope["client"] = (address.decode("ascii"), 0)
            elif TOOLS_PATH in scope["path"] and scope["client"]:
                scope["headers"].append(
                    (_HEADER, b" ".join([_KEY, scope["client"][0].encode("ascii", "replace")]))
                )
        await self._app(scope, receive, send)
