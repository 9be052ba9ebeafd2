"""A server's connections: bounded, and ended where no request comes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn

from specviz.compat import uvicorn as compat
from tests.support.serving import free_port

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
LARGE = 20_000_000
"""Bytes of an answer that no buffer of the system holds."""
ended = threading.Event()
"""Whether the large answer has been sent, or given up."""


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answers slowly: longer than a request may take to come. The answer of /large is large."""
    if scope["path"] == "/large":
        ended.clear()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(2):
            await send({"type": "http.response.body", "body": bytes(LARGE), "more_body": True})
        ended.set()
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
    for part in (b"on", b"ly"):
        await asyncio.sleep(0.6)
        await send({"type": "http.response.body", "body": part, "more_body": part == b"on"})


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Of a server for three connections, two of an address, that waits 1 s for requests."""
    config = uvicorn.Config(app, port=free_port(), log_level="error", lifespan="off")
    config.load()
    monkeypatch.setattr(compat, "REQUEST_SECONDS", 1.0)
    monkeypatch.setattr(compat, "STALLED_SECONDS", 1.0)
    compat.bound_connections(config, 3, 2, str)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
    yield config.port
    server.should_exit = True
    thread.join()


def send(port: int, data: bytes = REQUEST, address: str = "127.0.0.1") -> socket.socket:
    """A connection from an address, on which this has been sent."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=20, source_address=(address, 0))
    connection.sendall(data)
    return connection


def answer(connection: socket.socket, end: bytes) -> bytes:
    """What the server sends, up to `end` or the end of the connection."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while not found.endswith(end) and (more := connection.recv(1000)):
            found += more
    return found


def test_connections_are_bounded_and_the_refused_hear_it(port: int) -> None:
    """Of one address, and in all; who leaves makes room."""
    held = [send(port), send(port)]
    assert b" 503 " in answer(send(port, b""), b"}")
    held.append(send(port, address="127.0.0.2"))
    assert b" 503 " in answer(send(port, b"", "127.0.0.3"), b"}")
    assert all(b" 200 " in answer(each, b"only") for each in held)
    for each in held:
        each.close()
    assert b" 200 " in answer(send(port), b"only")


def test_a_request_that_does_not_come_ends_its_connection(port: int) -> None:
    """At the beginning, and after another request that was answered in full, however long that took."""
    silent, half = send(port, REQUEST[:10]), send(port, address="127.0.0.2")
    assert answer(half, b"only").endswith(b"only")
    half.sendall(REQUEST[:10])
    assert answer(half, b"never") == b""
    assert answer(silent, b"never") == b""


def test_an_answer_that_nobody_takes_ends_its_connection(port: int) -> None:
    """It is not held in memory for as long as the client likes."""
    stalled = send(port, REQUEST.replace(b"/", b"/large", 1))
    assert ended.wait(20)
    assert len(answer(stalled, b"never")) < LARGE
