"""The load test: locust's users of a real page whose service is the test's own, and what is asked of it."""

from __future__ import annotations

import dataclasses
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from specviz.__main__ import main
from specviz.app import running
from specviz.app.page import build_page
from specviz.core.methods import METHODS
from specviz.engine.events import Decided, Finished, Started, Waiting
from specviz.errors import BusyError, EngineError, RequestError
from specviz.schema.settings import Request
from specviz.schema.trace import Round, Run, Token, parse_trace
from specviz.serving.limits import Limits
from specviz.serving.service import Service
from specviz.tools.loadtest.load_test import LoadTest, distinct_requests
from tests.support.serving import close, start
from tests.support.traces import end_entry, line, round_entry, run_entry, token_entry

DISTINCT, ROUNDS = 3, 5
_MODEL: Run = parse_trace(
    map(line, (run_entry(), round_entry([token_entry("-")]), end_entry(1, "cascade_chow", "length")))
)


class Writer(Service):
    """Writes, for every seed, always the same few words; unless a test wants something else of it."""

    def __init__(self) -> None:
        super().__init__(Limits(per_visitor=1000))
        self.lock = threading.Lock()
        self.reset()

    def has_loaded(self, key: str) -> bool:
        return True

    def reset(self) -> None:
        """As good as new."""
        self.seconds, self.rounds, self.calls, self.running = 0.0, ROUNDS, 0, 0
        self.ended: Counter[str] = Counter()
        self.before: Callable[[int, Request], None] = lambda call, request: None
        self.word: Callable[[int, Request, int], str] = lambda call, request, at: word(request, at)

    def events(
        self, key: str, requests: Sequence[Request], stop: threading.Event, *_: Any, **__: Any
    ) -> Iterator[Any]:
        (request,) = requests
        with self.lock:
            self.calls, self.running, call = self.calls + 1, self.running + 1, self.calls
        run = dataclasses.replace(_MODEL, rounds=[], stop_reason="")
        try:
            yield Waiting(0, 1)
            self.before(call, request)
            yield Started(0, run)
            for at in range(self.rounds if call >= DISTINCT else ROUNDS):
                time.sleep(self.seconds)
                if stop.is_set():
                    run.stop_reason = "cancelled"
                    break
                run.rounds.append(one_round(at, self.word(call, request, at)))
                yield Decided(0, run, run.rounds[-1])
            run.stop_reason = run.stop_reason or "length"
            yield Finished(0, run)
        finally:
            with self.lock:
                self.running -= 1
                self.ended[run.stop_reason or "left"] += 1


def word(request: Request, at: int) -> str:
    """With everything that some take for the end of a line."""
    return f" {request.seed}.{at}\u2028\x85\n\n"


def one_round(index: int, text: str) -> Round:
    token: Token = dataclasses.replace(_MODEL.tokens[0], text=text, round=index)
    return dataclasses.replace(_MODEL.rounds[0], index=index, tokens=[token])


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[Writer, str]]:
    writer = Writer()
    page = build_page(writer)
    yield writer, start(page, writer)
    close(page)


@pytest.fixture
def writer(server: tuple[Writer, str], monkeypatch: pytest.MonkeyPatch) -> Writer:
    monkeypatch.setattr(running, "UPDATE_SECONDS", 0.0)
    monkeypatch.setattr(running, "UPDATES_A_SECOND", 1e9)
    server[0].reset()
    return server[0]


@pytest.fixture
def address(server: tuple[Writer, str]) -> str:
    return server[1]


def run(address: str, tmp_path: Path, *more: str) -> tuple[int, dict[str, Any]]:
    """Exit status and results of a load test of 12 requests."""
    file = tmp_path / "results.json"
    options = {"--users": 4, "--requests": 12, "--think": 0, "--distinct": DISTINCT, "--json": file}
    words = [str(word) for option in options.items() for word in option]
    status = main(["loadtest", address, *words, *more])
    return status, json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def test_a_server_that_is_right_passes_whatever_its_users_do(
    writer: Writer, address: str, tmp_path: Path
) -> None:
    """Cancelling and leaving are no errors, and the server hears of both."""
    writer.seconds = 0.04  # a text is still being written when a user breaks off
    status, found = run(address, tmp_path, "--cancel", "0.3", "--close", "0.3")
    assert (status, found["texts"], found["wrong"], found["errors"]) == (0, 12, 0, {})
    assert found["milliseconds"].keys() == {
        "first token",
        *(f"a text, {end}" for end in ("finished", "cancelled", "closed")),
    }
    assert all(times["p50"] <= times["p95"] for times in found["milliseconds"].values())
    assert found["tokens_per_second"] > 0
    until = time.monotonic() + 20
    while writer.running and time.monotonic() < until:
        time.sleep(0.05)
    assert writer.running == 0
    assert writer.ended["left"] + writer.ended["cancelled"] > 0


def test_a_soak_comes_through_every_door_and_says_what_the_server_holds(
    writer: Writer, address: str, tmp_path: Path
) -> None:
    """Every door answers under load as it does alone; the server's process is looked at twice."""
    _, found = run(address, tmp_path, "--soak", "1", "--requests", "40")
    assert (found["texts"], found["wrong"], found["errors"]) == (40, 0, {})
    before, after = found["held"]
    assert before.keys() == after.keys() == {"rss", "uss", "threads", "open_files", "disk"}
    assert min(before["uss"], before["threads"], before["open_files"]) > 0
    assert {"page", "fork", "tool", "opened_trace", "unread"} <= found["milliseconds"].keys()


def test_wrong_words_and_failures_are_counted_and_refusals_are_none(
    writer: Writer, address: str, tmp_path: Path
) -> None:
    """A wrong word is found also in a text that was broken off. What is under way when the last user is done is not counted."""
    raised: list[type] = []

    def before(call: int, request: Request) -> None:
        if call > DISTINCT and call % 6 == 0:
            raised.append(EngineError)
            raise EngineError("Memory ran out.")
        if call > DISTINCT and call % 6 == 1:
            raised.append(BusyError)
            raise BusyError("SpecViz is busy: try again in a minute.")

    writer.before, writer.seconds = before, 0.02
    writer.word = lambda call, request, at: " other" if call > DISTINCT and at == 0 else word(request, at)
    status, found = run(address, tmp_path, "--cancel", "0", "--close", "0.7")
    refused, errors = found["milliseconds"]["refused"], found["errors"]
    assert status == 1
    assert 0 < refused["count"] <= raised.count(BusyError)
    assert refused["failures"] == 0
    wrong = {name: count for name, count in errors.items() if "another text than alone" in name}
    assert found["wrong"] == sum(wrong.values())
    assert any("closed" in name for name in wrong)
    failed = sum(count for name, count in errors.items() if "Memory ran out." in name)
    assert 0 < failed <= raised.count(EngineError)


def test_a_server_that_serves_no_request_alone_ends_it_in_a_sentence(
    writer: Writer, address: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without the text alone there is nothing to compare with; and where nobody listens there is no text."""

    def before(call: int, request: Request) -> None:
        raise EngineError("Memory ran out.")

    writer.before = before
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{unheard.getsockname()[1]}"
        for url, why in ((address, "Memory ran out."), (nobody, "refused")):
            assert run(url, tmp_path) == (1, {})
            assert f"{url} does not serve a request" in (told := capfd.readouterr().err)
            assert why in told


def test_requests_are_distinct_and_the_same_for_a_seed() -> None:
    """They have every method and temperature 0."""
    requests = distinct_requests(24, 3)
    assert requests == distinct_requests(24, 3) != distinct_requests(24, 4)
    assert len({request.seed for request in requests}) == 24
    assert {request.method for request in requests} == METHODS.keys()
    assert 0 in {request.temperature for request in requests}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"address": "http://example.org:7860"}, "example.org is not this machine"),
        ({"address": "http://127.0.0.1.example.org"}, "is not this machine"),
        ({"address": "ftp://127.0.0.1"}, "must be like http"),
        ({"address": "7860"}, "must be like http"),
        ({"address": "http://[::1"}, "must be like http"),
        ({"users": 0}, "users is 0; it must be from 1 to 1000"),
        ({"cancel": 0.6, "close": 0.6}, "more than 1"),
        ({"think": float("nan")}, "think is nan"),
        ({"soak": 70}, "--soak needs --requests"),
    ],
)
def test_a_wrong_load_test_is_a_sentence(changes: dict[str, Any], sentence: str) -> None:
    """Nobody else's server is put under load by mistake."""
    with pytest.raises(RequestError, match=sentence):
        LoadTest(**{"address": "http://127.0.0.1"} | changes)


def test_this_machine_and_any_that_is_meant_are_allowed() -> None:
    for address in ("http://[::1]:7860", "http://localhost"):
        assert LoadTest(address).address == address
    assert LoadTest("https://example.org", anywhere=True).anywhere
