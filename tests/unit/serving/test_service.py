"""The service: several pairs in memory, each visitor within limits, and no run stopped by another pair's loading."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from specviz.analysis.quality import mean_log_probability
from specviz.engine.engine import Engine
from specviz.engine.events import Decided, Finished, Loading, Waiting, finished
from specviz.errors import BusyError, NoRoomError, PairError, QuotaError, RequestError, SpecvizError
from specviz.models.availability import PairStatus
from specviz.models.pair import ModelPair
from specviz.models.registry import PAIRS, PairSpec
from specviz.models.tokenizer import encode_prompt
from specviz.schema.settings import Request
from specviz.schema.trace import parse_trace
from specviz.serving.limits import Limits, Visitor
from specviz.serving.service import Service
from tests.support.tiny import Pairs
from tests.support.waiting import wait_until

FIRST, SECOND, THIRD = "embedded", "embedded-skip", "gpt2"
"""Keys of the registry; behind each stands a tiny pair here."""


@pytest.fixture(scope="module")
def tiny(pairs: Pairs) -> ModelPair:
    return replace(pairs("llama"), eos_token_ids=frozenset(), context_length=4000)


class Loads:
    """In place of `load_pair`: notes loads, and lets them fail or wait."""

    def __init__(self, pair: ModelPair) -> None:
        self.pair = pair
        self.keys: list[str] = []
        self.failures: dict[str, list[Exception]] = {}
        self.gates: dict[str, threading.Event] = {}

    def __call__(self, spec: PairSpec, progress: Callable[[float, str], None]) -> ModelPair:
        key = spec.key
        self.keys.append(key)
        progress(0.5, f"Loading {key}")
        if gate := self.gates.get(key):
            assert gate.wait(30)
        if self.failures.get(key):
            raise self.failures[key].pop(0)
        return replace(self.pair, key=key)


@pytest.fixture
def loads(tiny: ModelPair, monkeypatch: pytest.MonkeyPatch) -> Loads:
    loads = Loads(tiny)
    monkeypatch.setattr("specviz.models.loading.load_pair", loads)
    return loads


@pytest.fixture
def service(loads: Loads) -> Iterator[Service]:
    service = Service(Limits(per_visitor=2, per_address=3, max_new_tokens=3000))
    yield service
    service.close()


def ask(**more: Any) -> Request:
    return Request(**{"token_ids": [10, 20, 30], "max_new_tokens": 8, "seed": 1} | more)


def texts(service: Service, key: str, *requests: Request, **more: Any) -> list[list[int]]:
    events = service.events(key, requests or (ask(),), threading.Event(), **more)
    return [event.run.token_ids for event in events if isinstance(event, Finished)]


def begun(service: Service, key: str = FIRST, stop: threading.Event | None = None, **more: Any) -> Any:
    """The events of a long run that has begun."""
    events = service.events(key, [ask(max_new_tokens=3000)], stop or threading.Event(), **more)
    assert next(event for event in events if not isinstance(event, Waiting))
    return events


def test_pairs_are_loaded_once_and_the_one_not_used_for_longest_makes_room(
    service: Service, loads: Loads, tiny: ModelPair
) -> None:
    others = set(threading.enumerate())

    def engines() -> int:
        """How many engines' threads this test has started and are alive."""
        return sum(each.name.startswith("specviz-engine") for each in set(threading.enumerate()) - others)

    expected = [Engine(tiny).generate(ask())[0].token_ids]
    for key in (FIRST, SECOND, FIRST, THIRD, FIRST):
        assert texts(service, key) == expected
    assert loads.keys == [FIRST, SECOND, THIRD]
    assert engines() == 2
    assert {each.pair for each in service.status() if each.loaded} == {FIRST, THIRD}
    texts(service, SECOND)
    assert loads.keys == [FIRST, SECOND, THIRD, SECOND]
    # Counts survive an unloaded pair, its thread does not.
    finished = {each.pair: each.finished["length"] for each in service.status()}
    assert finished == {FIRST: 3, SECOND: 2, THIRD: 1}
    assert engines() == 2
    service.close()
    assert engines() == 0


def test_a_load_does_not_stop_those_who_run(service: Service, loads: Loads) -> None:
    """A run on the first pair goes on, and all who wait for the second see its progress."""
    loads.gates[SECOND] = threading.Event()
    running, shown = begun(service), list[str]()
    loader, follower = (
        threading.Thread(
            target=texts,
            args=(service, SECOND),
            kwargs={"progress": lambda _, text, who=who: shown.append(who + text)},
        )
        for who in ("", "too: ")
    )
    loader.start()
    wait_until(lambda: SECOND in loads.keys)
    follower.start()
    assert sum(isinstance(next(running), Decided) for _ in range(20)) >= 19
    wait_until(lambda: f"too: Loading {SECOND}" in shown)
    assert f"Loading {SECOND}" in shown
    loads.gates[SECOND].set()
    loader.join(30)
    follower.join(30)
    running.close()
    assert loads.keys.count(SECOND) == 1


def test_who_gives_no_progress_hears_of_a_load_by_events(service: Service, loads: Loads) -> None:
    """Until the models are in memory; then the run begins. A load that fails is the next event's error."""
    loads.gates[SECOND] = threading.Event()
    events = service.events(SECOND, [ask()], threading.Event())
    heard = itertools.takewhile(lambda event: event != Loading(0, 0, f"Loading {SECOND}"), events)
    assert all(isinstance(event, Loading) for event in heard)
    loads.gates[SECOND].set()
    assert [event.run.stop_reason for event in events if isinstance(event, Finished)] == ["length"]
    loads.failures[THIRD] = [PairError("The disk is full.")]
    with pytest.raises(PairError, match="The disk is full"):
        list(service.events(THIRD, [ask()], threading.Event()))
    assert loads.keys == [SECOND, THIRD]


def test_a_service_that_can_write_nothing_is_not_healthy(service: Service, loads: Loads) -> None:
    """Before and while its default pair is loaded it may be able to; when that failed it is not, until a pair is in memory."""
    assert service.healthy
    loads.failures[FIRST] = [PairError("The disk is full.")]
    assert service.warm_up(FIRST).exception()
    assert not service.healthy
    texts(service, SECOND)
    assert service.healthy


def test_pairs_in_use_are_not_unloaded(service: Service, loads: Loads) -> None:
    running = [begun(service, key) for key in (FIRST, SECOND)]
    with pytest.raises(BusyError, match="are in use"):
        texts(service, THIRD)
    running[0].close()
    assert len(texts(service, THIRD)) == 1
    assert {each.pair for each in service.status() if each.loaded} == {SECOND, THIRD}
    running[1].close()


def test_where_memory_is_short_all_who_are_idle_make_room(service: Service, loads: Loads) -> None:
    texts(service, FIRST)
    loads.failures[SECOND] = [NoRoomError("It does not fit into memory.")]
    assert len(texts(service, SECOND)) == 1
    assert [each.pair for each in service.status() if each.loaded] == [SECOND]
    loads.failures[THIRD] = [NoRoomError("It does not fit into memory."), NoRoomError("It still does not.")]
    with pytest.raises(NoRoomError, match="still"):
        texts(service, THIRD)


def refused_while_others_are_served(
    service: Service, visitors: list[Visitor], other: Visitor, words: str
) -> None:
    """The last visitor's run is refused while all before it run, and served when one has ended; another's is served."""
    stop = threading.Event()
    running = [begun(service, stop=stop, visitor=each) for each in visitors[:-1]]
    with pytest.raises(QuotaError, match=words):
        texts(service, FIRST, visitor=visitors[-1])
    assert len(texts(service, FIRST, visitor=other)) == 1
    running[0].close()
    assert len(texts(service, FIRST, visitor=visitors[-1])) == 1
    stop.set()
    for each in running[1:]:
        list(each)
    assert not service._visits._counts


def test_one_visitor_may_have_so_many_runs_and_one_address_so_many_texts(service: Service) -> None:
    """Who makes up a session for each call gains nothing."""
    one, another = Visitor("one"), Visitor("another")
    refused_while_others_are_served(service, [one] * 3, another, r"\b2\b")
    calls = [Visitor(f"call {number}", "203.0.113.7") for number in range(4)]
    elsewhere = Visitor("call", "203.0.113.8")
    refused_while_others_are_served(service, calls, elsewhere, r"\b3\b")


def test_requests_beyond_a_limit_are_refused_before_anything_loads(service: Service, loads: Loads) -> None:
    """The sentence names the limit."""
    for request, limit in (
        (Request(prompt="x" * 4001), 4000),
        (Request(token_ids=[1] * 2049), 2048),
        (ask(max_new_tokens=3001), 3000),
    ):
        with pytest.raises(RequestError, match=rf"\b{limit}\b"):
            texts(service, FIRST, request)
    with pytest.raises(RequestError, match=r"\b4\b"):
        list(service.compare_lines([FIRST] * 5, [ask()] * 5, threading.Event()))
    with pytest.raises(PairError):
        texts(service, "../../etc/passwd")
    assert loads.keys == service.status() == []


def test_what_a_prompt_costs_is_counted_in_tokens(loads: Loads, tiny: ModelPair) -> None:
    """A few characters may be many tokens. A fork may go on from all that a run may have: a prompt and a text."""
    rare = Request(prompt="\U00020000" * 20, max_new_tokens=12)
    most = len(encode_prompt(tiny.tokenizer, rare))
    service, stop = Service(Limits(max_prompt_tokens=most, max_new_tokens=12)), threading.Event()
    longer = replace(rare, prompt=f"{rare.prompt}\U00020000")
    count = len(encode_prompt(tiny.tokenizer, longer))
    try:
        with pytest.raises(RequestError, match=rf"\b{count} tokens.*\b{most}\b"):
            list(service.compare_lines([FIRST] * 2, [rare, longer], stop))
        assert not service.status()[0].finished
        [run] = finished(service.events(FIRST, [rare], stop))
        fork = run.fork(11)
        assert texts(service, FIRST, fork) == [run.token_ids[11:]]
        with pytest.raises(RequestError, match=rf"\b{most + 13} tokens.*\b{most + 12}\b"):
            texts(service, FIRST, replace(fork, token_ids=[*run.prompt_ids, *run.token_ids, 5]))
    finally:
        service.close()


def test_pairs_that_cannot_be_had_say_why_and_load_nothing(
    service: Service, loads: Loads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pair in memory can be had, whatever the hub says. Answers are cached for some seconds."""
    usable, asked = {FIRST: True, SECOND: False, THIRD: False}, []

    def describe(pairs: Iterable[PairSpec], held: Iterable[PairSpec]) -> list[PairStatus]:
        asked.append([spec.key for spec in held])
        return [PairStatus(spec, 0.0, False, usable.get(spec.key, True), "the hub is down") for spec in pairs]

    monkeypatch.setattr("specviz.models.availability.describe_pairs", describe)
    monkeypatch.setattr("specviz.serving.offer.missing_pairs", lambda: {"pythia": "too large for a CPU"})
    monkeypatch.setattr("specviz.serving.offer.offered_pairs", lambda: {key: PAIRS[key] for key in usable})
    service.check_pair(SECOND)  # nobody has asked yet
    texts(service, THIRD)
    expected = {"pythia": "too large for a CPU", SECOND: "the hub is down"}
    assert service.obstacles() == service.obstacles() == expected
    assert asked == [[THIRD]]
    with pytest.raises(PairError, match="the hub is down"):
        service.check_pair(SECOND)
    with pytest.raises(PairError, match="too large for a CPU"):
        texts(service, "pythia")
    service.check_pair(FIRST)
    service.check_pair(THIRD)
    assert loads.keys == [THIRD]
    usable[SECOND] = True
    monkeypatch.setattr("specviz.serving.service._STATES_SECONDS", 0.0)
    service.check_pair(SECOND)
    assert service.obstacles() == {"pythia": "too large for a CPU"}


def test_lines_are_the_trace_of_the_run(service: Service, tiny: ModelPair) -> None:
    """Law 7: what is shown is what ran. A comparison's last table has what its verifiers think of the texts."""
    lines = list(service.lines(FIRST, ask(inspect=3), threading.Event()))
    shown = [line for line in lines if line and '"waiting"' not in line]
    [run] = Engine(tiny).generate(ask())
    assert parse_trace(shown).token_ids == run.token_ids
    compared = service.compare_lines([FIRST, SECOND], [ask()] * 2, threading.Event())
    first, last = (json.loads(line)["rows"] for line in compared if '"table"' in line)
    quality = mean_log_probability(tiny, run.prompt_ids, run.token_ids)
    assert [[row["quality"] for row in rows] for rows in (first, last)] == [[None] * 2, [quality] * 2]


def test_a_dead_engine_is_replaced(service: Service, loads: Loads) -> None:
    texts(service, FIRST)
    with service.engine(FIRST) as engine:
        engine.close()
    assert not service.healthy
    assert len(texts(service, FIRST)) == 1
    assert service.healthy
    service.close()
    assert not service.healthy
    with pytest.raises(PairError, match="being stopped"):
        texts(service, FIRST)


def test_limits_come_from_the_environment() -> None:
    limits = Limits.from_environment({"SPECVIZ_MAX_PROMPT": "100", "SPECVIZ_ROWS": "4", "OTHER": "x"})
    assert limits == Limits(max_prompt=100, max_sequences=4)  # SPECVIZ_ROWS is a former name
    for wrong in ("0", "1e3", "٣"):
        with pytest.raises(SpecvizError, match="SPECVIZ_QUEUE"):
            Limits.from_environment({"SPECVIZ_QUEUE": wrong})
