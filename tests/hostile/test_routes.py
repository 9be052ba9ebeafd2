"""Every address of the server, with requests that no client of ours would send."""

from __future__ import annotations

import json
import select
import socket
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specviz.app import guard
from tests.hostile.conftest import API, Live
from tests.hostile.conftest import JSON as SAYS_JSON
from tests.support.waiting import wait_until

OPEN = ("/", "/config", "/theme.css", "/favicon.ico", "/healthz", "/lessons?name=cascades", f"{API}/info")
"""What anybody may read."""
CLOSED = (
    *("/monitoring", "/metrics", "/class", "/class/now", "/docs", "/login_check", "/nothing", "/app.py", "/.git/config", "/gradio_api"),
    *(f"{API}/{path}" for path in ("token", "deep_link?session_hash=x", "runs", "vibe-code", "profiling/traces", "nothing")),
    *(f"{API}/{path}" for path in ("proxy=https://x.hf.space/", "proxy=http://127.0.0.1/", "stream/a/b/1/playlist.m3u8")),
)  # fmt: skip
"""Addresses that gradio has beside the page, or that do not exist."""
POSTS = (
    "queue/join", "run/predict", "run/x", "api/predict", "call/generate", "call/v2/generate", "call/v2/nothing", "cancel", "reset",
    "component_server",
)  # fmt: skip
NOT_POSTED = (
    "upload",
    "stream/x",
    "process_recording",
    "vibe-edit",
    "run-history/connect",
    "profiling/clear",
)
BODIES = (
    b"", b"null", b"[]", b"{}", b"{", b"\xff\xfe", b"[" * 100_000, b"9" * 5000, b'{"data":[],"fn_index":0}',
    b'{"data":{},"session_hash":1}', b'{"data":[NaN,Infinity],"fn_index":NaN}', b'{"data":["\\ud800"],"fn_index":"\\ud800"}',
    b'{"data":[1],"fn_index":0,"batched":true,"session_hash":"a"}', b'{"event_id":"\\ud800","data":[]}',
    *(b'{"data":[],"session_hash":"guest","fn_index":%s}' % index for index in (b"-1", b"1" + 30 * b"0", b'"x"', b"1.5", b"[]", b"true")),
)  # fmt: skip
HEADERS: tuple[dict[str, bytes], ...] = (
    {"host": b"evil\x01"}, {"host": b"<script>"}, {"x-forwarded-host": b"[::"}, {"x-forwarded-host": b"a:99999999"},
    {"x-forwarded-proto": b"javascript"}, {"x-gradio-server": b"::::"}, {"x-gradio-user": b"\xff"}, {"range": b"bytes=1-2-3"},
    {"range": b"bytes=\xb2-\xb3"}, {"accept-encoding": b"\xff, br;q=x"}, {"content-type": b"multipart/form-data"},
    {"origin": b"http://\xff"},
)  # fmt: skip


def check(answer: Any) -> None:
    """A 4xx in a sentence, or what was asked for; nothing of Python."""
    assert answer.status_code < 500, (answer.request.url, answer.status_code, answer.text[:300])
    assert "Traceback" not in answer.text
    assert "site-packages" not in answer.text or answer.status_code == 200


def test_what_is_open_answers_and_what_is_not_needed_is_not_found(live: Live) -> None:
    """Of gradio's addresses only those answer that the page and its clients need."""
    for status, paths in ((200, OPEN), (404, CLOSED)):
        for path in paths:
            assert live.send("GET", path).status_code == status, path
    for path in NOT_POSTED:
        assert live.send("POST", f"{API}/{path}", content=b"{}", headers=SAYS_JSON).status_code == 404, path


def test_every_route_of_the_app_is_either_open_or_not_found_for_strangers(live: Live) -> None:
    """Whatever addresses a later gradio adds, they are refused until somebody opens them."""
    refused = 0
    for route in live.page.app.routes:
        path = str(getattr(route, "path", "")).replace("{path:path}", "x")
        for method in sorted(getattr(route, "methods", None) or ()):
            filled = path.replace("{", "").replace("}", "").replace(":path", "")
            if "heartbeat" in filled or "dev/reload" in filled:  # endless
                continue
            answer = live.send(method, filled)
            check(answer)
            refused += answer.status_code == 404
    assert refused >= 10


def test_a_body_that_an_address_does_not_take_is_a_4xx(live: Live) -> None:
    """No body makes an address answer 5xx, and none is repeated in the answer."""
    for path in POSTS:
        for body in BODIES:
            answer = live.send("POST", f"{API}/{path}", content=body, headers=SAYS_JSON)
            check(answer)
            assert len(answer.content) < 1000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
FIELDS = ("data", "fn_index", "session_hash", "event_id", "event_data", "trigger_id", "batched")


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.sampled_from(POSTS), st.dictionaries(st.sampled_from(FIELDS), JSON))
def test_no_body_of_right_names_and_wrong_values_is_a_5xx(
    live: Live, path: str, body: dict[str, Any]
) -> None:
    """The same for whatever Hypothesis thinks of."""
    sent = json.dumps(body)
    check(live.send("POST", f"{API}/{path}", content=sent, headers=SAYS_JSON))


def test_headers_and_queries_that_no_client_sends_break_nothing(live: Live) -> None:
    """Neither makes the page, a file or an event answer 5xx; nobody's deep link is read."""
    for headers in HEADERS:
        for method, path in (("GET", "/config"), ("GET", "/assets/x"), ("POST", f"{API}/queue/join")):
            check(live.send(method, path, headers=headers))
    for query in ("page=%00", "deep_link=..%2F..%2Fx", "deep_link=%ff", "__theme=%ff", "x=" + "y" * 8000):
        for path in ("/", "/config", f"{API}/info"):
            check(live.send("GET", f"{path}?{query}"))
    for session in ("nobody", "nobody%00", "nobody%ff", "n" * 5000):
        answer = live.send("GET", f"{API}/queue/data?session_hash={session}")
        check(answer)
        assert 'session_not_found":true' in answer.text
        check(live.send("GET", f"{API}/call/generate/{session}"))


def test_what_is_no_http_is_answered_or_dropped(live: Live) -> None:
    """Bytes that are no request get a 4xx or nothing at all."""
    host = b"Host: 127.0.0.1\r\n"
    for request in (
        b"\0\0\0\0\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 20_000 + b"\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n" + host + b"\r\n",
        b"POST /gradio_api/queue/join HTTP/1.1\r\n" + host + b"Content-Length: -5\r\n\r\n",
        b"POST /gradio_api/queue/join HTTP/1.1\r\n" + host + b"Content-Length: 99999999999999\r\n\r\n",
        b"GET /gradio_api/file=%00 HTTP/1.1\r\n" + host + b"\r\n",
        b"GET http://other.example/ HTTP/1.1\r\n" + host + b"\r\n",
        b"CONNECT other.example:443 HTTP/1.1\r\n" + host + b"\r\n",
        b"TRACE / HTTP/1.1\r\n" + host + b"\r\n",
    ):
        answer = live.raw(request.replace(b"\r\nHost", b"\r\nConnection: close\r\nHost"))
        assert not answer or answer.split()[1][:1] in b"24", answer


def test_a_body_is_read_up_to_a_limit(live: Live) -> None:
    """Nobody fills the server's memory with one request, said beforehand or not."""
    whole = live.send("POST", f"{API}/queue/join", content=b"x" * (guard.MAX_BODY + 1), headers=SAYS_JSON)
    assert whole.status_code == 413
    parts = [b"y" * 100_000] * (guard.MAX_BODY // 100_000 + 1)
    result = live.send("POST", f"{API}/queue/join", content=iter(parts), headers=SAYS_JSON)
    assert result.status_code == 413


def test_bodies_that_do_not_end_have_a_bound_in_bytes_and_in_time(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All bodies share one budget, which those that break off give back; small ones are served beside a full one."""
    monkeypatch.setattr(guard, "MAX_BODIES", 100_000)
    target = (httpx.URL(live.address).host, httpx.URL(live.address).port or 80)
    head = f"POST {API}/queue/join HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n"
    large = b'{"data": ["' + b"x" * 300_000 + b'"]}'

    def status(content: bytes) -> int:
        return live.send("POST", f"{API}/cancel", content=content, headers=SAYS_JSON).status_code

    def is_full() -> bool:
        """Whether another body is refused. If that one came first, the one that was to be held is, and is sent again."""
        nonlocal held
        if select.select([held], [], [], 0)[0]:
            held.close()
            held = hold()
        return status(large[:150_000]) == 503

    def hold() -> socket.socket:
        connection = socket.create_connection(target, timeout=30)
        connection.sendall(head.encode() + b" " * (guard.SMALL_BODY + 99_000))
        return connection

    held = hold()
    wait_until(is_full)
    small = live.post("cancel", 0, [], event_id="x")
    assert small.status_code == 200
    held.close()
    monkeypatch.setattr(guard, "MAX_BODIES", 300_000)
    wait_until(lambda: status(large) != 503)  # the server has noticed that the connection is gone
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.2)
    assert live.raw(head.encode() + b"{").split()[1] == b"408"


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        (
            "v2/generate",
            {"prompt": "Hi", "nonsense": 1},
            "There is no argument 'nonsense' here: leave it out",
        ),
        ("v2/generate", {"prompt": "Hi", "é" * 500: 1}, "There is no argument 'ééé"),
        ("v2/generate", {}, "The argument prompt is missing: give it a value."),
        ("v2/subtract", {}, "There is no endpoint 'subtract' here; /gradio_api/info lists"),
        ("subtract", {"data": []}, "There is no endpoint 'subtract' here; /gradio_api/info lists"),
    ],
)
def test_a_wrong_call_hears_what_is_wrong(live: Live, path: str, body: dict[str, Any], words: str) -> None:
    answer = live.send("POST", f"{API}/call/{path}", json=body)
    assert answer.status_code == 400
    assert words in answer.json()["detail"]
    assert len(answer.text) < 300


def test_too_few_and_too_many_values_are_counted(live: Live) -> None:
    for values in (["Hi"], [1] * 40):
        event = live.send("POST", f"{API}/call/generate", json={"data": values}).json()["event_id"]
        told = live.send("GET", f"{API}/call/generate/{event}").text
        assert f"{len(values)} values were sent, 15 are expected: send all, or name the arguments." in told
