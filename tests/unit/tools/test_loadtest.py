"""The load test: locust's users of a real page whose service serves a tiny pair, and what is asked of it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from specviz.__main__ import main
from specviz.app import running
from specviz.app.page import build_page
from specviz.errors import BusyError, EngineError
from specviz.models.pair import ModelPair
from specviz.schema.settings import Request
from specviz.serving.limits import Limits
from specviz.serving.service import Service
from specviz.tools.loadtest.load_test import _is_here
from tests.support.serving import close, holding, start
from tests.support.waiting import wait_until

DISTINCT = 3


class Slow(Service):
    """A service that takes its time, and that can be told to fail, to refuse and to write other texts.

    Attributes:
        address: where its page is served.
        right: number of calls after which it does so.
        unfinished: number of texts that were not read to their end.
    """

    def __init__(self) -> None:
        super().__init__(Limits(per_visitor=1000))
        self.address = ""
        self.right, self.calls, self.running, self.unfinished = 10**9, 0, 0, 0

    def events(self, key: str, requests: Sequence[Request], *rest: Any, **more: Any) -> Iterator[Any]:
        self.calls += 1
        if self.calls > self.right:
            if self.calls % 6 < 2:
                raise (EngineError("Memory ran out."), BusyError("SpecViz is busy."))[self.calls % 6]
            requests = [replace(each, prompt="another") for each in requests]
        return self._slowly(super().events(key, requests, *rest, **more))

    def _slowly(self, events: Iterator[Any]) -> Iterator[Any]:
        self.running += 1
        self.unfinished += 1
        try:
            for event in events:
                time.sleep(0.03)
                yield event
            self.unfinished -= event.run.stop_reason != "cancelled"
        finally:
            self.running -= 1


@pytest.fixture(scope="module")
def server(pair: ModelPair) -> Iterator[Slow]:
    service = Slow()
    page = build_page(service)
    with holding(service, pair):
        service.address = start(page, service)
        yield service
    close(page)


@pytest.fixture
def service(server: Slow, monkeypatch: pytest.MonkeyPatch) -> Slow:
    monkeypatch.setattr(running, "UPDATE_SECONDS", 0.0)
    monkeypatch.setattr(running, "UPDATES_A_SECOND", 1e9)
    server.right, server.calls = 10**9, 0
    return server


def run(service: Slow, tmp_path: Path, *more: str) -> tuple[int, dict[str, Any]]:
    """Exit status and results of a load test of 12 requests."""
    file = tmp_path / "results.json"
    options = {"--users": 4, "--requests": 12, "--think": 0, "--distinct": DISTINCT, "--json": file}
    words = [str(word) for option in options.items() for word in option]
    status = main(["loadtest", service.address, *words, *more])
    return status, json.loads(file.read_text(encoding="utf-8"))


def test_a_server_that_is_right_passes_whatever_its_users_do(service: Slow, tmp_path: Path) -> None:
    """Cancelling and leaving are no errors, and the server hears of both."""
    status, found = run(service, tmp_path, "--cancel", "0.4", "--close", "0.4")
    assert (status, found["texts"], found["wrong"], found["errors"]) == (0, 12, 0, {})
    assert found["milliseconds"].keys() >= {"first token", "a text, cancelled", "a text, closed"}
    assert all(times["p50"] <= times["p95"] for times in found["milliseconds"].values())
    assert found["tokens_per_second"] > 0
    wait_until(lambda: not service.running)
    assert service.unfinished


def test_wrong_texts_and_failures_are_counted_and_refusals_are_none(service: Slow, tmp_path: Path) -> None:
    """A wrong text is found also where it was broken off."""
    service.right = DISTINCT
    status, found = run(service, tmp_path, "--cancel", "0", "--close", "0.7")
    refused, errors = found["milliseconds"]["refused"], found["errors"]
    assert status == 1
    assert refused["count"] > refused["failures"] == 0
    wrong = {name: count for name, count in errors.items() if "another text than alone" in name}
    assert found["wrong"] == sum(wrong.values())
    assert any("closed" in name for name in wrong)
    assert any("Memory ran out." in name for name in errors)


def test_a_server_of_another_kind_is_left_at_once(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    (tmp_path / "config").write_text("{}")
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as other:
        threading.Thread(target=other.serve_forever).start()
        status = main(
            ["loadtest", f"http://127.0.0.1:{other.server_port}", "--users", "1", "--seconds", "60"]
        )
        other.shutdown()
    assert status == 1
    assert "does not serve a request" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("http://127.0.0.1.example.org",), "must be one of this machine"),
        (("http://[::1",), "must be one of this machine"),
        (("http://127.0.0.1", "--users", "0"), "--users"),
        (("http://127.0.0.1", "--cancel", "0.6", "--close", "0.6"), "more than 1"),
    ],
)
def test_a_wrong_load_test_is_a_sentence(
    words: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture
) -> None:
    """Nobody else's server is put under load by mistake."""
    assert main(["loadtest", *words]) == 2
    assert sentence in capsys.readouterr().err
    assert all(map(_is_here, ("http://[::1]:7860", "http://localhost")))
