"""The cached page is the same for everybody who comes by one address, and nothing else is cached."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient

from specviz.app import page_cache
from specviz.app.page_cache import PageCache


@pytest.fixture
def site() -> SimpleNamespace:
    """A server that counts how often it made its page."""
    site = SimpleNamespace(made=0, status=200, headers={})

    def page(request: Request) -> Response:
        site.made += 1
        text = f"{site.made} {request.url.hostname} {request.headers.get('x-forwarded-proto')} " + "x" * 2000
        return HTMLResponse(text, site.status, site.headers)

    routes = [Route("/", page, methods=["GET", "POST"]), Route("/config", page)]
    site.app = Starlette(routes=routes, middleware=[Middleware(PageCache)])
    site.client = TestClient(site.app)
    return site


def test_each_address_has_one_compressed_page_and_invented_ones_take_no_memory(
    site: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody gets a page with the address that a stranger gave."""
    monkeypatch.setattr(page_cache, "MOST", 3)
    for host in ("a.org", "b.org", "a.org"):
        page = site.client.get("/?__theme=dark", headers={"host": host})
        assert f" {host} " in page.text
        assert (page.headers["content-encoding"], int(page.headers["content-length"]) < 200) == ("gzip", True)
    assert " https " in site.client.get("/", headers={"host": "a.org", "x-forwarded-proto": "https"}).text
    assert site.made == 3
    for host in ("1.org", "2.org", "3.org", "a.org"):
        assert f" {host} None " in site.client.get("/", headers={"host": host}).text
    assert site.made == 7


def test_nothing_else_is_cached(site: SimpleNamespace) -> None:
    """No other address or page, no failure, nothing with a cookie, and nothing where visitors sign in or read no gzip."""
    for _ in range(2):
        site.client.get("/config")
        site.client.post("/")
        site.client.get("/?deep_link=abc")
        site.client.get("/", headers={"accept-encoding": "identity"})
    assert site.made == 8
    site.status = 500
    assert [site.client.get("/").status_code for _ in range(2)] == [500, 500]
    site.status, site.headers = 200, {"set-cookie": "a=b"}
    assert [site.client.get("/").headers["set-cookie"] for _ in range(2)] == ["a=b", "a=b"]
    site.headers, site.app.auth = {}, object()
    site.client.get("/")
    site.client.get("/")
    assert site.made == 14
