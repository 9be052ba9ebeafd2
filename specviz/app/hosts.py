"""The host names under which the server answers, and the sites whose pages may use it.

A malicious website can point its own host name to 127.0.0.1 (DNS rebinding), or make a visitor's browser send requests to 127.0.0.1.
A server that listens on loopback refuses both.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from specviz.app.refusals import refusal
from specviz.environment import HOSTS, on_space

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
FOREIGN_HOST = f"This server does not answer under this host: open it as localhost, or let its owner name the host in {HOSTS.name}."
FOREIGN_SITE = f"Another site's page may not use this server: open the server's own page, or let its owner name that site's host in {HOSTS.name}."


def allowed_hosts(
    server_name: str, *addresses: str, environment: Mapping[str, str] | None = None
) -> frozenset[str]:
    """Return the host names under which a server on `server_name` answers. Pages of these hosts may also send requests to the server.

    On a Space, or if SPECVIZ_HOSTS has "*": {"*"}, which allows every host and every page. If SPECVIZ_HOSTS has names, or `server_name` is
    loopback: these names, loopback, `server_name` and `addresses`. Otherwise an empty set: any host is allowed, but no other host's pages.
    """
    environment = os.environ if environment is None else environment
    named = frozenset(each if each == "*" else _name(each) for each in HOSTS.value(environment))
    if "*" in named or on_space(environment):  # a Space's proxies set the host
        return frozenset({"*"})
    own = _name(server_name)
    if not named and own not in _LOOPBACK:
        return frozenset()
    return named | _LOOPBACK | {own} | {_name(each) for each in addresses if each}


class HostCheck:
    """ASGI middleware: refuses requests to hosts that `allowed_hosts` lacks, and requests from other sites' pages."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        sentence = self._refusal(Headers(scope=scope)) if scope["type"] == "http" else ""
        answer = refusal(scope, 403, sentence) if sentence else self._app
        await answer(scope, receive, send)

    def _refusal(self, headers: Headers) -> str:
        """The sentence that refuses a request, or "" if it is allowed. Ports are not compared, since a proxy may omit them."""
        host, origin = _name(headers.get("host", "")), headers.get("origin")
        if "*" in self._hosts:
            return ""
        if self._hosts and host and host not in self._hosts:
            return FOREIGN_HOST
        # X-Forwarded-Host does not count: a page may send what it likes there.
        if origin is not None and (not (site := _name(origin)) or site not in {host, *self._hosts}):
            return FOREIGN_SITE
        return ""


def _name(address: str) -> str:
    """The host name in an address or a header, in lower case; "" if there is none."""
    if address.count(":") > 1 and "[" not in address and "://" not in address:
        return address.lower()  # an IPv6 address, as in HOST
    try:
        return urlsplit(address if "://" in address else f"//{address}").hostname or ""
    except ValueError:
        return ""
