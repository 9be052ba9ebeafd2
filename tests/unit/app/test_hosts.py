"""Which hosts are answered, and whose pages may ask."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.testclient import TestClient

from specviz.app.hosts import HostCheck, allowed_hosts
from specviz.environment import HOSTS

NAMED = {HOSTS.name: "specviz.example"}


def status(hosts: frozenset[str], host: str, origin: str | None = None) -> int:
    """Of a request for nothing: 404 if it is let through."""
    app = Starlette(middleware=[Middleware(HostCheck, hosts)])
    headers = {"host": host} | ({} if origin is None else {"origin": origin})
    return TestClient(app).post("/", headers=headers | {"x-forwarded-host": "site.example"}).status_code


@pytest.mark.parametrize(
    ("server_name", "environment", "host", "origin", "expected"),
    [
        *(("127.0.0.1", {}, host, None, 404) for host in ("127.0.0.1:7860", "LOCALHOST", "[::1]:7860")),
        ("127.0.0.1", {}, "localhost:7860", "http://localhost:7860", 404),
        ("127.0.0.1", {}, "specviz.example", "https://specviz.example", 403),
        ("127.0.0.1", NAMED, "specviz.example", "https://specviz.example:8443", 404),
        ("127.0.0.1", NAMED, "site.example", None, 403),
        ("127.0.0.1", {HOSTS.name: "*"}, "site.example", "https://other.example", 404),
        ("0.0.0.0", {}, "192.168.1.7:7860", "http://192.168.1.7:7860", 404),
        *(("0.0.0.0", {}, "192.168.1.7:7860", site, 403) for site in ("https://site.example", "null", "")),
        ("0.0.0.0", {HOSTS.name: "localhost"}, "site.example:7860", "http://site.example:7860", 403),
        ("0.0.0.0", {"SPACE_ID": "a/b"}, "a-b.hf.space", "https://site.example", 404),
        ("192.168.1.7", NAMED, "192.168.1.7:7860", None, 404),
    ],
)
def test_only_own_and_named_hosts_are_answered_to_their_own_pages(
    server_name: str, environment: dict[str, str], host: str, origin: str | None, expected: int
) -> None:
    assert status(allowed_hosts(server_name, environment=environment), host, origin) == expected


def test_the_address_of_a_class_is_answered() -> None:
    """Behind a proxy on the same machine, whose address the teacher has told the class."""
    hosts = allowed_hosts("127.0.0.1", "https://class.example/", "", environment={})
    assert status(hosts, "class.example", "https://class.example") == 404
