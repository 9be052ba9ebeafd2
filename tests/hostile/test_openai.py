"""The addresses of OpenAI's clients, with what no client of ours would send: every refusal is OpenAI's object with a sentence."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specviz.app import guard
from specviz.app.openai_request import CHAT, TEXT
from specviz.engine.events import Event, Started
from specviz.errors import BusyError, QuotaError
from specviz.schema.trace import parse_trace
from tests.hostile.conftest import JSON, Live
from tests.support.traces import make_trace
from tests.support.waiting import wait_until

CALLS = ("/v1/completions", "/v1/chat/completions")
HI: dict[str, Any] = {"model": "embedded", "prompt": "Hi"}
HELLO: dict[str, Any] = {"model": "embedded", "messages": [{"role": "user", "content": "Hi"}]}
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


def refused(answer: httpx.Response, status: int = 400) -> dict[str, Any]:
    """The error of an answer that refuses."""
    assert answer.status_code == status, answer.text[:300]
    error = answer.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert len(error["message"]) < 400
    return error


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.sampled_from(CALLS), st.dictionaries(st.sampled_from(sorted(CHAT | TEXT)), ANYTHING, max_size=4))
def test_no_value_of_a_parameter_is_a_5xx(live: Live, path: str, sent: dict[str, Any]) -> None:
    """Whatever Hypothesis thinks of."""
    usual = HELLO if "chat" in path else HI
    answer = live.send("POST", path, content=json.dumps(usual | sent), headers=JSON)
    assert answer.status_code in (200, 400, 404), answer.text[:300]
    if answer.status_code != 200:
        refused(answer, answer.status_code)


@pytest.mark.parametrize(
    ("sent", "param"),
    [
        ({"n": 2}, "n"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages"),
        ({"temperature": -1}, "temperature"),
        ({"max_tokens": 10**6}, "max_tokens"),
        ({"stop": ["x"] * 5}, "stop"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"stream": "yes"}, "stream"),
        ({"nonsense": 1}, "nonsense"),
    ],
)
def test_a_refusal_names_the_parameter(live: Live, sent: dict[str, Any], param: str) -> None:
    """Of each kind one."""
    error = refused(live.send("POST", CALLS[1], json=HELLO | sent))
    assert (error["param"], error["type"]) == (param, "invalid_request_error")


def test_refusals_of_the_whole_server_have_the_same_form(live: Live) -> None:
    """What the guard, the check of hosts and the router refuse reads as what the address itself does. A body may be deep."""
    before = len(live.service.visitors)
    refused(live.send("POST", CALLS[1], json=HELLO, headers={"origin": "https://site.example"}), 403)
    refused(live.send("POST", CALLS[1], json=HELLO, headers={"host": "rebind.example"}), 403)
    refused(live.send("POST", CALLS[1], content=b"x" * (guard.MAX_BODY + 1), headers=JSON), 413)
    refused(live.send("POST", CALLS[1], content=b"[" * 100_000, headers=JSON))
    refused(live.send("POST", "/v1/embeddings", json={}), 404)
    refused(live.send("GET", CALLS[0]), 405)
    unknown = refused(live.send("POST", CALLS[1], json=HELLO | {"model": "secret"}), 404)
    assert (unknown["param"], unknown["code"]) == ("model", "model_not_found")
    assert "secret" not in unknown["message"]
    assert len(live.service.visitors) == before


def said(live: Live, body: bytes) -> socket.socket:
    """A connection on which a chat completion was asked for."""
    target = httpx.URL(live.address)
    head = f"POST {CALLS[1]} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
    connection = socket.socket()
    # So that what is not read stays at the server.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(30)
    connection.connect((target.host, target.port or 80))
    connection.sendall(head.encode() + body)
    return connection


@pytest.mark.parametrize("streams", [False, True])
def test_a_client_that_hangs_up_ends_its_run(
    live: Live, monkeypatch: pytest.MonkeyPatch, streams: bool
) -> None:
    """Streamed or not, and whether it has read anything or not."""
    wait_until(lambda: live.service.active == 0)
    monkeypatch.setattr(live.service, "pause", 1.0)
    with said(live, json.dumps(HELLO | {"stream": streams}).encode()) as connection:
        wait_until(lambda: live.service.active == 1)
        answer = b""
        while streams and b"chat.completion.chunk" not in answer:
            answer += connection.recv(4096)
    wait_until(lambda: live.service.active == 0)


@pytest.mark.parametrize(
    ("error", "status"),
    [(QuotaError("Wait."), 429), (BusyError("Wait."), 503), (ValueError("a secret"), 500)],
    ids=repr,
)
def test_a_failure_has_a_status_or_is_the_last_event_of_a_stream(
    live: Live, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int
) -> None:
    """Before the first event of a run it is the answer, and afterwards an event; nothing unforeseen is told."""
    run = parse_trace(make_trace().lines)
    script: list[Event] = []

    def events(*_: Any, **__: Any) -> Iterator[Event]:
        yield from script
        raise error

    monkeypatch.setattr(live.service, "events", events)
    answer = live.send("POST", CALLS[1], json=HELLO | {"stream": True})
    told = refused(answer, status)
    assert "secret" not in told["message"]
    script = [Started(0, run)]
    answer = live.send("POST", CALLS[1], json=HELLO | {"stream": True})
    *_, last, end, _ = answer.text.split("\n\n")
    assert answer.status_code == 200
    assert (json.loads(last.removeprefix("data: ")), end) == ({"error": told}, "data: [DONE]")


def test_a_space_serves_them_only_if_its_owner_says_so(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is public. On ZeroGPU a run needs the time of a visitor of the page. What changes nothing in a call is passed over."""
    monkeypatch.setenv("SPACE_ID", "a/b")
    assert "SPECVIZ_OPENAI" in refused(live.send("POST", CALLS[1], json=HELLO), 404)["message"]
    monkeypatch.setenv("SPECVIZ_OPENAI", "1")
    more = {"n": 1, "user": "me", "metadata": {}, "tools": [], "logit_bias": None, "presence_penalty": 0.0}
    assert live.send("POST", CALLS[1], json=HELLO | more).status_code == 200
    monkeypatch.setattr("specviz.environment.on_zero_gpu", lambda: True)
    assert "borrows a GPU" in refused(live.send("POST", CALLS[1], json=HELLO), 404)["message"]
