"""Every address of the server, with requests that no client of ours would send."""

from __future__ import annotations

import select
import socket
from typing import Any

import httpx
import pytest

from specviz.app import guard
from tests.hostile.conftest import API, JSON, Live
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
        assert live.send("POST", f"{API}/{path}", content=b"{}", headers=JSON).status_code == 404, path


def test_the_page_is_compressed_for_whoever_takes_it(live: Live) -> None:
    sizes = [
        int(live.send("GET", "/", headers={"accept-encoding": kind}).headers.get("content-length", 10**7))
        for kind in ("gzip", "identity")
    ]
    assert sizes[0] < sizes[1] / 4


def test_a_body_that_an_address_does_not_take_is_a_4xx(live: Live) -> None:
    """No body makes an address answer 5xx, and none is repeated in the answer."""
    for path in POSTS:
        for body in BODIES:
            answer = live.send("POST", f"{API}/{path}", content=body, headers=JSON)
            check(answer)
            assert len(answer.content) < 1000


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


def test_a_body_is_read_up_to_a_limit(live: Live) -> None:
    """Nobody fills the server's memory with one request, said beforehand or not."""
    parts = [b"y" * 100_000] * (guard.MAX_BODY // 100_000 + 1)
    for content in (b"".join(parts), iter(parts)):
        assert live.send("POST", f"{API}/queue/join", content=content, headers=JSON).status_code == 413


def test_bodies_that_do_not_end_have_a_bound_in_bytes_and_in_time(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All bodies share one budget, which those that break off give back; small ones are served beside a full one."""
    monkeypatch.setattr(guard, "MAX_BODIES", 100_000)
    target = (httpx.URL(live.address).host, httpx.URL(live.address).port or 80)
    head = f"POST {API}/queue/join HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n"
    large = b'{"data": ["' + b"x" * 300_000 + b'"]}'

    def status(content: bytes) -> int:
        return live.send("POST", f"{API}/cancel", content=content, headers=JSON).status_code

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
        ("v2/generate", {"prompt": "Hi", "é" * 500: 1}, "There is no argument 'ééé"),
        ("v2/generate", {}, "The argument prompt is missing: give it a value."),
        ("subtract", {"data": []}, "There is no endpoint 'subtract' here; /gradio_api/info lists"),
    ],
)
def test_a_wrong_call_hears_what_is_wrong(live: Live, path: str, body: dict[str, Any], words: str) -> None:
    answer = live.send("POST", f"{API}/call/{path}", json=body)
    assert answer.status_code == 400
    assert words in answer.json()["detail"]
    assert len(answer.text) < 300
