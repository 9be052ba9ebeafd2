"""Whoever asks is the same visitor at every door: the page, HTTP and MCP."""

from __future__ import annotations

import threading
from functools import partial

import httpx
import pytest

from specviz.compat import gradio_answers
from tests.hostile.conftest import API, Live
from tests.hostile.test_events import run_of_generate, stream
from tests.support.waiting import wait_until

PROXIED = {"x-forwarded-for": "203.0.113.7"}
"""What a proxy on this machine tells of its client."""


TOOL = {"name": "generate", "arguments": {"prompt": "Hi"}}
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": TOOL}
ACCEPTS = {"accept": "application/json, text/event-stream"}


def call_tool(live: Live, **headers: str) -> httpx.Response:
    """Call `generate` over MCP; the HTTP answer."""
    return live.send("POST", f"{API}/mcp/", json=CALL, headers=ACCEPTS | headers)


def test_an_address_is_counted_at_every_door(live: Live) -> None:
    """The limit per address counts the client's own address, also where an assistant calls; nobody names another one."""
    before = len(live.service.visitors)
    index, data = run_of_generate(live, "Hi")
    headers = PROXIED | {"x-specviz-client": "forged 198.51.100.1", "x-gradio-user": "mcp"}
    assert live.post("queue/join", index, data, "doors", headers).status_code == 200
    called = live.send("POST", f"{API}/call/v2/generate", json={"prompt": "Hi"}, headers=headers)
    live.send("GET", f"{API}/call/generate/{called.json()['event_id']}")
    assert "stop_reason" in call_tool(live, **headers).text
    found = live.service.visitors[before:]
    assert [each.address for each in found] == ["203.0.113.7"] * 3
    assert len({each.session for each in found}) == 3


def test_a_tool_call_that_is_abandoned_ends_its_run(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """An assistant that closes the connection keeps no slot busy."""
    before = live.service.stopped
    monkeypatch.setattr(live.service, "pause", 0.1)
    with (
        pytest.raises(httpx.ReadTimeout),
        httpx.Client(base_url=live.address, timeout=httpx.Timeout(30, read=0.5)) as assistant,
    ):
        assistant.post(f"{API}/mcp/", json=CALL, headers=ACCEPTS)
    wait_until(lambda: live.service.stopped == before + 1)


def test_nobody_takes_a_text_away_from_somebody_else(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who makes up sessions without reading any answer is refused in a sentence; others are served, and what runs goes on.

    In all, too, only so many answers are held.
    """
    index, data = run_of_generate(live, "Tell me a story")
    flood = {"x-forwarded-for": "198.51.100.9"}
    monkeypatch.setattr(live.service, "pause", 0.5)
    shown: list[str] = []
    assert live.post("queue/join", index, data, "victim", PROXIED).status_code == 200
    reader = threading.Thread(target=stream, args=(live, "victim", shown))
    reader.start()
    names = [f"made up {number}" for number in range(live.service.limits.per_address + 1)]
    *accepted, refused = (live.post("queue/join", index, [], name, flood) for name in names)
    assert {answer.status_code for answer in accepted} == {200}
    assert refused.status_code == 503
    assert "unread" in refused.json()["detail"]
    hi = partial(live.send, "POST", f"{API}/call/v2/generate", json={"prompt": "Hi"}, headers=PROXIED)
    assert hi().status_code == 200
    with monkeypatch.context() as patch:
        patch.setattr(gradio_answers, "MOST_EVENTS", 1)
        assert hi().status_code == 503
    monkeypatch.setattr(live.service, "pause", 0.0)
    live.send("GET", f"{API}/queue/data?session_hash=made%20up%200")
    assert live.post("queue/join", index, [], "made up again", flood).status_code == 200
    reader.join()
    assert 'type\\":\\"end' in "".join(shown)


def test_no_website_uses_a_server_on_this_machine(live: Live) -> None:
    """Neither under a name of its own for 127.0.0.1 nor from its own pages, at no door; nothing is run, and it reads nothing."""
    rebound = {"host": "rebind.example:7860", "origin": "http://rebind.example:7860"}
    before = len(live.service.visitors)
    for headers in (rebound, {"origin": "https://site.example"}, {"origin": "null"}):
        answers = [
            live.send("POST", f"{API}/call/v2/generate", json={"prompt": "Hi"}, headers=headers),
            live.post("queue/join", 0, [], "guest", headers),
            live.send("GET", "/config", headers=headers),
            call_tool(live, **headers),
        ]
        assert {answer.status_code for answer in answers} == {403}
    assert len(live.service.visitors) == before
    own = {"origin": live.address}
    assert "stop_reason" in call_tool(live, **own).text
    assert live.send("GET", "/config", headers=own).status_code == 200
