"""The load test: it finds what is wrong with a server, and nothing wrong with one that is right.

The server is the real page with a real API; what writes is a stand-in that gives every seed a text of its own.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from httpx_sse import EventSource

from specviz.__main__ import main
from specviz.app import running
from specviz.app.page import build_page, launch
from specviz.core.methods import METHODS
from specviz.engine.events import Decided, Finished, Started, Waiting
from specviz.errors import BusyError, EngineError, RequestError, SpecvizError
from specviz.schema.settings import Request
from specviz.schema.trace import Round, Run, Token, parse_trace
from specviz.serving.limits import Limits
from specviz.serving.service import Service
from specviz.tools.loadtest import load_test
from specviz.tools.loadtest.client import Client, Received, ServerConfig
from specviz.tools.loadtest.load_test import LoadTest, Measurements
from specviz.tools.loadtest.report import markdown, outcomes, percentiles, sentences, times, to_json, verdict
from specviz.tools.loadtest.scenario import WAYS, Scenario, distinct_requests
from specviz.tools.loadtest.visitor import (
    CANCELLED,
    CLOSED,
    FAILED,
    FINISHED,
    KILLED,
    READ,
    REFUSED,
    UNFINISHED,
    Visitor,
)
from tests.support.serving import close
from tests.support.traces import end_entry, line, round_entry, run_entry, token_entry

DISTINCT, ROUNDS = 3, 5
ABOUT = {name: name for name in ("command", "date", "machine")}
_MODEL: Run = parse_trace(
    map(line, (run_entry(), round_entry([token_entry("-")]), end_entry(1, "cascade_chow", "length")))
)


class Writer(Service):
    """Writes, for every seed, always the same few words; unless a test wants something else of it."""

    def __init__(self) -> None:
        super().__init__(Limits(per_visitor=1000))
        self.lock = threading.Lock()
        self.reset()

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
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    page = build_page(writer)
    _, address, _ = launch(
        page, writer, server_name="127.0.0.1", server_port=port, prevent_thread_lock=True, quiet=True
    )
    yield writer, address
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


def measure(address: str, stop: threading.Event | None = None, **more: Any) -> Measurements:
    """A small load test without a pause."""
    small: dict[str, Any] = {"users": 4, "requests": 12, "think": 0.0, "distinct": DISTINCT}
    scenario = Scenario(address, **small | {"cancel": 0.0, "close": 0.0} | more)
    return LoadTest(scenario, lambda fraction, text: None, stop or threading.Event()).run()


@pytest.mark.parametrize("through", WAYS)
def test_a_server_that_is_right_passes_whatever_its_visitors_do(
    writer: Writer, address: str, through: str
) -> None:
    """Stopping, leaving and losing the connection are no errors, and the server hears of each of them."""
    writer.seconds = 0.02
    shares = {"cancel": 0.25, "close": 0.25, "kill": 0.25}
    measured = measure(address, through=through, seed=20, **shares)  # the first four do one of each
    assert measured.complete
    assert not measured.failed, (measured.alone, measured.visits, measured.again)
    assert [visit.number for visit in measured.visits] == list(range(1, 13))
    became = {"close": {CLOSED}, "kill": {KILLED}, "read": {FINISHED}, "cancel": {CANCELLED, FINISHED}}
    assert {visit.intent for visit in measured.visits} == set(became)
    assert all(visit.outcome in became[visit.intent] for visit in measured.visits)
    finished = [visit for visit in measured.visits if visit.outcome == FINISHED]
    assert {visit.tokens for visit in [*finished, *measured.alone]} == {ROUNDS}
    assert all(visit.waited <= visit.first_token <= visit.seconds for visit in finished)
    assert measured.tokens == sum(visit.tokens for visit in measured.visits)
    assert_nothing_runs(writer)
    assert writer.ended["left"] + writer.ended["cancelled"] > 0
    assert sum(writer.ended.values()) == writer.calls


def test_after_a_pause_visitors_do_not_all_ask_at_the_same_moment(
    writer: Writer, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who had thought while the server rested thinks again."""
    monkeypatch.setattr(load_test, "EARLY", 3)
    monkeypatch.setattr(load_test, "REST_SECONDS", 1.0)
    measured = measure(address, users=6, requests=14, think=0.2, pid=os.getpid(), seed=1)
    asked = [visit.asked for visit in measured.visits]
    pause = max(range(1, len(asked)), key=lambda index: asked[index] - asked[index - 1])
    after = asked[pause:]
    assert asked[pause] - asked[pause - 1] > 0.8
    assert not measured.failed
    assert len(after) > 4
    assert after[4] - after[0] > 0.01


def assert_nothing_runs(writer: Writer) -> None:
    until = time.monotonic() + 20
    while writer.running and time.monotonic() < until:
        time.sleep(0.05)
    assert writer.running == 0


@pytest.mark.parametrize("through", WAYS)
def test_stopping_stops(writer: Writer, address: str, through: str) -> None:
    """A visitor who cancels gets a text that ends at once, which would have gone on for long."""
    writer.rounds, writer.seconds = 10_000, 0.02
    writer.word = lambda call, request, at: word(request, at) if at < ROUNDS else ""
    measured = measure(address, through=through, requests=4, cancel=1.0)
    assert outcomes(measured.visits) == {CANCELLED: 4}
    assert not measured.failed
    assert_nothing_runs(writer)


def test_alone_again_is_held_against_the_same_texts(writer: Writer, address: str) -> None:
    """What is asked alone after the load is compared too."""
    late = DISTINCT + 2 + 1  # the second of those asked again
    writer.word = lambda call, request, at: " other" if call == late else word(request, at)
    measured = measure(address, through="api", requests=2, again=True)
    assert [visit.wrong for visit in measured.again] == [False, True, False]
    assert not any(visit.wrong for visit in measured.visits)
    assert measured.failed


@pytest.mark.parametrize("through", WAYS)
def test_a_wrong_word_is_found_also_in_a_text_that_was_broken_off(
    writer: Writer, address: str, through: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A text that is not the one written alone, or no beginning of it, fails the load test; its number is told."""
    odd = distinct_requests(DISTINCT, 29)[
        1
    ]  # with this seed one visitor reads it at first, and another one leaves it
    writer.word = lambda call, request, at: (
        " marker" if call >= DISTINCT and request.seed == odd.seed and at == 0 else word(request, at)
    )
    files = {name: tmp_path / f"report.{name}" for name in ("json", "markdown")}
    status = main(
        ["loadtest", address, "--users", "3", "--requests", "6", "--think", "0", "--distinct", str(DISTINCT)]
        + ["--seed", "29", "--cancel", "0.2", "--close", "0.3", "--through", through]
        + [word for name, file in files.items() for word in (f"--{name}", str(file))]
    )
    assert status == 1
    written = json.loads(files["json"].read_text(encoding="utf-8"))
    seen = [visit for visit in written["visits"] if visit["request"] == 1 and visit["tokens"]]
    assert {FINISHED, CLOSED} <= {visit["outcome"] for visit in seen}
    assert written["wrong"] == [visit["number"] for visit in seen]
    printed = capsys.readouterr().out
    assert f"Wrong texts: {len(seen)}: {seen[0]['number']} (request 1)" in printed
    assert f"- Wrong texts: {len(seen)}: " in files["markdown"].read_text(encoding="utf-8")
    assert all("marker" not in file.read_text(encoding="utf-8") for file in files.values())


@pytest.mark.parametrize("through", WAYS)
def test_failures_and_refusals_are_counted_with_their_sentences(
    writer: Writer, address: str, through: str
) -> None:
    """A refusal is told and no error; whatever else ends a text is an error, and others are not affected."""

    def before(call: int, request: Request) -> None:
        if call >= DISTINCT and call % 4 == 0:
            raise EngineError(f"Memory ran out after {call} calls.")
        if call >= DISTINCT and call % 4 == 1:
            raise BusyError("SpecViz is busy: try again in a minute.")

    writer.before = before
    measured = measure(address, through=through)
    assert outcomes(measured.visits) == {FINISHED: 6, REFUSED: 3, FAILED: 3}
    assert sentences(measured.visits, FAILED) == {"Memory ran out after # calls.": 3}
    assert sentences(measured.visits, REFUSED) == {"SpecViz is busy: try again in a minute.": 3}
    assert measured.failed


def test_only_refused_is_no_failure(writer: Writer, address: str) -> None:
    """A server that says that it is busy has done nothing wrong."""

    def before(call: int, request: Request) -> None:
        if call >= DISTINCT:
            raise BusyError("SpecViz is busy.")

    writer.before = before
    measured = measure(address, requests=5)
    assert outcomes(measured.visits) == {REFUSED: 5}
    assert not measured.failed


def test_a_text_that_cannot_be_had_alone_ends_it_in_a_sentence(writer: Writer, address: str) -> None:
    """Without the text alone there is nothing to compare with."""

    def before(call: int, request: Request) -> None:
        raise ValueError("inside")

    writer.before = before
    with pytest.raises(SpecvizError, match=r"Asked alone, request 0 was not served .* Something broke"):
        measure(address)


def test_broken_off_it_keeps_what_was_done(writer: Writer, address: str) -> None:
    """Ctrl-C ends the load test at once, with a report, and leaves nothing running on the server."""
    stop = threading.Event()
    writer.seconds = 0.02

    def before(call: int, request: Request) -> None:
        if call == DISTINCT + 6:
            writer.seconds = 0.5
            stop.set()

    writer.before = before
    measured = measure(address, stop=stop, requests=1000)
    assert not measured.complete
    assert not measured.failed
    assert len(measured.alone) == DISTINCT
    assert 1 <= outcomes(measured.visits)[UNFINISHED] <= 4
    assert "Incomplete" in verdict(measured)[1]
    assert "Incomplete" in markdown(measured, **ABOUT)
    assert json.loads(to_json(measured, **ABOUT))["complete"] is False


class _Listening(Client):
    """A client of a server of the test's own."""

    async def ask(self, request: Request) -> Any:
        async with self._events("/") as events:
            async for each in events:
                yield each.data

    async def stop(self) -> None:
        pass


@pytest.mark.parametrize(
    "abruptly",
    [
        False,
        pytest.param(
            True,
            marks=pytest.mark.skipif(
                sys.version_info < (3, 11), reason="asyncio of Python 3.10 ends a connection before its reset"
            ),
        ),
    ],
)
def test_a_tab_is_left_without_a_word_and_a_killed_one_by_a_reset(abruptly: bool) -> None:
    """A closed client ends its connections in order, a killed one resets them."""

    async def scene() -> type[BaseException] | bytes:
        ended: asyncio.Future[type[BaseException] | bytes] = asyncio.get_running_loop().create_future()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
            writer.write(head + b"b\r\ndata: one\n\n\r\n")
            try:
                ended.set_result(await reader.read())
            except ConnectionResetError as error:
                ended.set_result(type(error))
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
            client = _Listening(http, ServerConfig({"dependencies": [], "components": []}), "")
            stream = client.ask(Request(prompt="-"))
            assert await anext(stream) == "one"
            await client.close(abruptly=abruptly)
            found = await asyncio.wait_for(ended, 10)
            await stream.aclose()
        server.close()
        return found

    assert asyncio.run(scene()) == (ConnectionResetError if abruptly else b"")


def test_events_end_at_an_empty_line_and_nowhere_else() -> None:
    """An event's data arrive whole, in however many pieces they come and whatever stands in them."""
    said = json.dumps({"text": "a\u2028b\x85c\n\nd"}, ensure_ascii=False).encode()
    body = b"event: generating\ndata: " + said + b"\n\ndata: {}\n\n"

    async def read(size: int) -> list[tuple[str, str]]:
        async def pieces() -> Any:
            for start in range(0, len(body), size):
                yield body[start : start + size]

        response = httpx.Response(200, headers={"content-type": "text/event-stream"}, content=pieces())
        return [(each.event, each.data) async for each in EventSource(response).aiter_sse()]

    for size in (1, 7, len(body)):
        assert asyncio.run(read(size)) == [("generating", said.decode()), ("message", "{}")]


def test_what_is_asked_for_is_distinct_and_the_same_for_a_seed() -> None:
    """The requests depend on the seed alone, and has every method and temperature 0 in it."""
    requests = distinct_requests(24, 3)
    assert requests == distinct_requests(24, 3) != distinct_requests(24, 4)
    assert len({dataclasses.astuple(request) for request in requests}) == 24
    assert len({request.seed for request in requests}) == 24
    assert {request.method for request in requests} == METHODS.keys()
    assert 0 in {request.temperature for request in requests}


def test_visitors_do_what_they_were_planned_to() -> None:
    """What a visitor means to do and how long it thinks have the shares and the mean that were asked for."""
    scenario = Scenario("http://localhost", think=2.0, cancel=0.2, close=0.3, kill=0.1)
    requests = distinct_requests(4, 0)

    def unconnected() -> Client:
        raise AssertionError("nothing was to be asked")

    visitors = [Visitor(1, scenario, requests, unconnected) for _ in range(2)]
    first, second = ([visitor.choose(at) for at in range(4000)] for visitor in visitors)
    assert first == second
    meant = Counter(visit.intent for visit in first)
    shares = {"cancel": 0.2, "close": 0.3, "kill": 0.1, READ: 0.4}
    assert {name: meant[name] / 4000 for name in shares} == pytest.approx(shares, abs=0.03)
    assert Counter(visit.request for visit in first).keys() == {0, 1, 2, 3}
    assert sum(visitors[0].think() for _ in range(4000)) / 4000 == pytest.approx(2.0, rel=0.1)
    patience = [visitors[0]._patience(visit, Received("text", 9)) for visit in first]
    assert {each for each, visit in zip(patience, first, strict=True) if visit.intent == READ} == {None}
    assert set(patience) == {None, *range(9)}


def test_percentiles_are_values_that_were_measured() -> None:
    """Median and 95th percentile are by the nearest rank; of nothing there are none."""
    found = percentiles([float(each) for each in range(100, 0, -1)])
    assert found is not None
    assert tuple(found.values()) == (100, 50, 95, 100)
    assert percentiles([]) is None
    assert set(times([]).values()) == {None}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"address": "http://example.org:7860"}, "example.org is not this machine"),
        ({"address": "http://127.0.0.1.example.org"}, "is not this machine"),
        ({"address": "ftp://127.0.0.1"}, "must be like http"),
        ({"address": "7860"}, "must be like http"),
        ({"address": "http://[::1"}, "must be like http"),
        ({"users": 0}, "Users: 0 was asked for; from 1 to 1000"),
        ({"cancel": 0.6, "close": 0.6}, "more than 1"),
        ({"think": float("nan")}, "Seconds to think: nan"),
        ({"through": "post"}, "page and api are"),
    ],
)
def test_a_wrong_scenario_is_a_sentence(changes: dict[str, Any], sentence: str) -> None:
    """Nobody else's server is put under load by mistake; a value out of range is told in a sentence."""
    with pytest.raises(RequestError, match=sentence):
        Scenario(**{"address": "http://127.0.0.1"} | changes)


def test_this_machine_and_any_that_is_meant_are_allowed() -> None:
    """Loopback needs no leave, any other host needs --anywhere."""
    assert Scenario("http://[::1]:7860").seconds == Scenario("http://localhost").seconds == 300
    assert Scenario("https://example.org", anywhere=True, requests=5).seconds is None


def test_where_nothing_answers_that_is_said() -> None:
    """A server that is not there, or a process that is not, is told before anything else is done."""
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unheard.getsockname()[1]}"
        with pytest.raises(SpecvizError, match="No SpecViz answers there"):
            measure(address)
        with pytest.raises(RequestError, match="No process 999999999 can be looked at"):
            measure(address, pid=999999999)
