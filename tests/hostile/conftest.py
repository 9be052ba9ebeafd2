"""Shared by the tests of hostile visitors: one live page, served as the real one is, over a service without models."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr
import httpx
import pytest

from specviz.app.page import build_page
from specviz.engine.events import Decided, Event, Finished, Started
from specviz.schema.settings import Request
from specviz.schema.trace import parse_trace
from specviz.serving.limits import Visitor
from specviz.serving.service import Service
from specviz.serving.statistics import EngineStatistics
from tests.support.serving import close, start
from tests.support.traces import make_trace

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"

API = "/gradio_api"
JSON = {"content-type": "application/json"}
TRACE = make_trace(stop_reason="eos").lines


class FakeService(Service):
    """Serves one made-up run to whoever asks, with the prompt that was asked for; counts who is being served."""

    def __init__(self) -> None:
        super().__init__()
        self.active = 0
        self.stopped = 0
        self.visitors: list[Visitor] = []
        self.pause = 0.0
        self.statistics = [EngineStatistics("embedded", 32, loaded=True)]

    def events(
        self, key: str, requests: Sequence[Request], stop: threading.Event, progress: Any = None, **more: Any
    ) -> Iterator[Event]:
        self.active += 1
        self.visitors.append(more["visitor"])
        try:
            for index, request in enumerate(requests):
                run = parse_trace(TRACE)
                run.prompt = request.prompt or ""
                yield Started(index, run)
                for round_ in run.rounds:
                    time.sleep(self.pause)
                    if stop.is_set():
                        self.stopped += 1
                        return
                    yield Decided(index, run, round_)
                yield Finished(index, run)
        finally:
            self.active -= 1

    def status(self) -> list[EngineStatistics]:
        return self.statistics


@dataclass
class Live:
    """A page that is being served, and a client for it."""

    address: str
    page: gr.Blocks
    service: FakeService
    http: httpx.Client

    def send(self, method: str, path: str, **how: Any) -> httpx.Response:
        """One request."""
        return self.http.request(method, path, **how)

    def raw(self, request: bytes) -> bytes:
        """The beginning of the answer to these bytes; b"" where there is none."""
        parts = httpx.URL(self.address)
        answer = b""
        target = (parts.host, parts.port or 80)
        with socket.create_connection(target, timeout=10) as connection, contextlib.suppress(ConnectionError):
            connection.sendall(request)
            while len(answer) < 4096 and (more := connection.recv(4096)):
                answer += more
        return answer

    def raw_get(self, path: str) -> bytes:
        """The beginning of the answer for a path that is sent without being encoded."""
        return self.raw(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())

    def post(
        self, path: str, fn_index: Any, data: Any, session: Any = "guest", headers: Any = (), **more: Any
    ) -> httpx.Response:
        """Send an event to an address below `API`."""
        body = json.dumps({"fn_index": fn_index, "data": data, "session_hash": session} | more)
        return self.send("POST", f"{API}/{path}", content=body, headers=JSON | dict(headers))

    def event(self, fn_index: int, data: Any, session: str = "guest", **more: Any) -> dict[str, Any]:
        """Put an event into the queue; the message that says how it ended."""
        joined = self.post("queue/join", fn_index, data, session, **more)
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


def file_data(path: Any, **more: Any) -> dict[str, Any]:
    """A file as the page sends it."""
    return {"path": path, "meta": {"_type": "gradio.FileData"}} | more


@pytest.fixture(scope="session")
def live() -> Iterator[Live]:
    """The one page of these tests; it must still answer at the end."""
    service = FakeService()
    page = build_page(service)
    address = start(page, service)
    found = Live(address, page, service, httpx.Client(base_url=address, timeout=30))
    yield found
    assert found.http.get("/healthz").json()["status"] == "ok"
    assert found.http.get("/").status_code == 200
    found.http.close()
    close(found.page)
