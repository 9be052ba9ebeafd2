"""What the tests of hostile guests share: one live page, served as the real one is, over a service without models."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from specviz.app.page import build_page, launch
from specviz.engine.events import Decided, Event, Finished, Started
from specviz.schema.settings import Request
from specviz.schema.trace import Run, parse_trace
from specviz.serving.service import Service
from specviz.serving.statistics import EngineStatistics
from tests.support.serving import close
from tests.support.traces import make_trace

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"

API = "/gradio_api"
JSON = {"content-type": "application/json"}


class FakeService(Service):
    """Serves one made-up run to whoever asks, with the prompt that was asked for; counts who is being served."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Request] = []
        self.active = 0
        self.pause = 0.0
        self.statistics = [EngineStatistics("embedded", 32, loaded=True)]

    def _run(self, request: Request) -> Run:
        run = parse_trace(make_trace(stop_reason="eos").lines)
        run.prompt = request.prompt or ""
        return run

    def events(
        self, key: str, requests: Sequence[Request], stop: threading.Event, progress: Any = None, **more: Any
    ) -> Iterator[Event]:
        self.asked += requests
        self.active += 1
        try:
            for index, request in enumerate(requests):
                run = self._run(request)
                yield Started(index, run)
                for round_ in run.rounds[:3]:
                    time.sleep(self.pause)
                    if stop.is_set():
                        break
                    yield Decided(index, run, round_)
                yield Finished(index, run)
        finally:
            self.active -= 1

    def lines(
        self, key: str, request: Request, stop: threading.Event, progress: Any = None, **more: Any
    ) -> Iterator[str]:
        self.asked.append(request)
        self.active += 1
        try:
            for line in self._run(request).lines():
                time.sleep(self.pause)
                if stop.is_set():
                    return
                yield line
        finally:
            self.active -= 1

    def compare_lines(
        self, key: str, requests: Sequence[Request], stop: threading.Event, progress: Any = None, **more: Any
    ) -> Iterator[str]:
        for index, request in enumerate(requests):
            for line in self.lines(key, request, stop):
                yield json.dumps({"pane": index} | json.loads(line)) + "\n"

    def sweep(self, *given: Any, **more: Any) -> Iterator[Any]:
        yield from ()

    def status(self) -> list[EngineStatistics]:
        return self.statistics


@dataclass
class Live:
    """A page that is being served, and a client for it."""

    address: str
    page: Any
    """What was served; of one in another process only its `config`."""
    service: FakeService
    http: httpx.Client
    sent: set[str] = field(default_factory=set)
    """Every request that was sent, in a form to be counted."""

    def send(self, method: str, path: str, **how: Any) -> httpx.Response:
        """One request; it is remembered."""
        self.sent.add(f"{method} {path} {how!r}"[:5000])
        return self.http.request(method, path, **how)

    def raw(self, request: bytes) -> bytes:
        """The beginning of the answer to bytes that no client would send as they are; b"" where there is none."""
        self.sent.add(request[:5000].decode("latin-1"))
        parts = httpx.URL(self.address)
        answer = b""
        target = (parts.host, parts.port or 80)
        with socket.create_connection(target, timeout=10) as connection, contextlib.suppress(ConnectionError):
            connection.sendall(request)
            while len(answer) < 4096 and (more := connection.recv(4096)):
                answer += more
        return answer

    def raw_get(self, path: str, method: str = "GET") -> bytes:
        """The beginning of the answer for a path that is sent as it is."""
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        return self.raw(head.encode())

    def event(self, fn_index: int, data: Any, session: str = "guest", **more: Any) -> dict[str, Any]:
        """Put an event into the queue and wait until it ends; the message that says how it ended."""
        body = json.dumps({"fn_index": fn_index, "data": data, "session_hash": session} | more)
        joined = self.send("POST", f"{API}/queue/join", content=body, headers=JSON)
        assert joined.status_code < 500, joined.text
        if joined.status_code != 200:
            return {"refused": joined.status_code}
        with self.http.stream("GET", f"{API}/queue/data", params={"session_hash": session}) as stream:
            for line in stream.iter_lines():
                message = json.loads(line[5:]) if line.startswith("data:") else {}
                # A stream also tells how earlier events of its session ended, which nobody waited for.
                own = message.get("event_id") == joined.json()["event_id"]
                if own and message["msg"] == "process_completed":
                    return message
        raise AssertionError("the stream ended before the event did")


def serve(service: FakeService) -> Live:
    """Serve the whole page on a free port."""
    page = build_page(service)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    launch(page, service, server_port=port, prevent_thread_lock=True, quiet=True)
    address = f"http://127.0.0.1:{port}"
    return Live(address, page, service, httpx.Client(base_url=address, timeout=30))


@pytest.fixture(scope="session")
def live() -> Iterator[Live]:
    """The one page of these tests; at the end nobody is being served any more, and it still answers."""
    found = serve(FakeService())
    yield found
    assert found.http.get("/healthz").json()["status"] == "ok"
    assert found.http.get("/").status_code == 200
    found.http.close()
    close(found.page)
