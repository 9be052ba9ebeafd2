"""The shared engine: in any company, and whatever fails beside it, each request gets the text that it gets alone."""

from __future__ import annotations

import dataclasses
import gc
import itertools
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from specviz.engine.batch import Batch
from specviz.engine.engine import BaseEngine, Engine
from specviz.engine.events import Decided, Event, Finished, Started, Stream, Waiting, finished
from specviz.engine.scheduler import Scheduler
from specviz.engine.sequence import Sequence
from specviz.errors import BusyError, EngineError, RequestError
from specviz.models.pair import ModelPair
from specviz.models.tokenizer import Detokenizer
from specviz.runtime.kv_cache import KVCacheLayer
from specviz.runtime.model_runner import ModelRunner
from specviz.runtime.prefix_cache import PrefixCache
from specviz.schema.settings import AUTO, Request
from specviz.schema.trace import Run
from specviz.serving.policy import Policy
from specviz.serving.shared_engine import SharedEngine
from tests.support.tiny import tiny_pair

METHODS = ("speed", "cascade_tokenV3", "verifier_only", "cascade_opt", "drafter_only")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> ModelPair:
    """Texts end where they were asked to, or after thousands of tokens."""
    pair = tiny_pair("llama", tmp_path_factory.mktemp("shared"))
    return dataclasses.replace(pair, eos_token_ids=frozenset(), context_length=8000)


@dataclasses.dataclass(frozen=True)
class ReadsFor(Policy):
    """Prompts are read for a fixed time between two steps."""

    seconds: float = 0.0

    def reading_seconds(self, step_seconds: float) -> float:
        return self.seconds


@pytest.fixture
def shared(pair: ModelPair) -> Iterator[SharedEngine]:
    engine = SharedEngine(pair, max_sequences=6, queue=64)
    yield engine
    engine.close()


def asked(number: int, **more: Any) -> Request:
    """One of many different requests."""
    settings: dict[str, Any] = {
        "token_ids": [7 + (number * 13 + position) % 60 for position in range(1 + (number * 7) % 23)],
        "method": METHODS[number % len(METHODS)],
        "draft_length": 1 + number % 5,
        "seed": number,
        "max_new_tokens": 10 + 3 * (number % 5),
    }
    return Request(**settings | more)


def endless(**more: Any) -> Request:
    """A request that goes on until it is stopped."""
    return asked(3, max_new_tokens=8000, **more)


def decoding(engine: SharedEngine, **more: Any) -> Stream[Event | Waiting]:
    """A stream of a request that decodes and goes on until the stream is closed."""
    stream = engine.stream(endless(), **more)
    while not isinstance(next(stream), Decided):
        pass
    return stream


def wait_until_idle(engine: SharedEngine) -> None:
    """Until all that was sent has been received, and nothing is served nor waits."""
    for _ in range(3000):
        engine.call(lambda: None)
        engine.call(lambda: None)  # a turn lies between two calls of one thread
        if not (engine.statistics.running or engine.statistics.waiting):
            return
        time.sleep(0.01)
    raise AssertionError("something is still being served")


def in_threads(functions: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=function) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)


def alone(pair: ModelPair, request: Request) -> list[int]:
    return Engine(pair).generate(request)[0].token_ids


def test_requests_that_join_at_any_time_get_the_texts_they_get_alone(
    pair: ModelPair, shared: SharedEngine
) -> None:
    """Law 3: thirty requests from thirty threads, more than there are slots, joining and leaving as they come."""
    found: dict[int, Run] = {}

    def ask(number: int) -> None:
        time.sleep(0.01 * (number % 7))
        [run] = shared.generate(asked(number))
        found[number] = run

    in_threads([lambda number=number: ask(number) for number in range(30)])
    for number, run in found.items():
        assert run.token_ids == alone(pair, asked(number)), number
    assert len(found) == 30
    assert max(run.neighbours for run in found.values()) > 0
    assert shared.statistics.finished["length"] + shared.statistics.finished["eos"] == 30
    assert shared.statistics.tokens == sum(len(run.tokens) for run in found.values())
    wait_until_idle(shared)


def test_long_prompts_are_read_between_the_rounds_of_others(pair: ModelPair) -> None:
    """Law 3: a prompt of many chunks does not stall those that decode."""
    engine = SharedEngine(pair, policy=ReadsFor(chunk=5))
    long = asked(1, token_ids=[5 + position % 50 for position in range(90)])
    running = decoding(engine)
    begin = engine.statistics.rounds
    for event in engine.stream(long):
        if isinstance(event, Started):
            assert engine.statistics.rounds - begin > 90 / 5
        if isinstance(event, Finished):
            assert event.run.token_ids == alone(pair, long)
    running.close()
    engine.close()


def test_those_who_wait_join_between_two_rounds(pair: ModelPair) -> None:
    """Nobody waits for a round of others just because somebody else was admitted before it."""
    engine = SharedEngine(pair, policy=ReadsFor(seconds=60.0))
    begun, release, runs = threading.Event(), threading.Event(), []
    held = threading.Thread(target=engine.call, args=(lambda: (begun.set(), release.wait()),))
    held.start()
    begun.wait()
    streams = [engine.stream(asked(number, draft_length=3)) for number in range(4)]
    # When the thread is silent, `next` returns `Waiting` after a second: all are submitted then.
    in_threads([lambda each=each: next(each) for each in streams])
    release.set()
    for stream in streams:
        runs += finished(stream)
    assert engine.statistics.rounds == max(len(run.rounds) for run in runs)
    assert all(run.neighbours == 3 for run in runs)
    held.join()
    engine.close()


def test_if_steps_are_long_a_sequence_that_joins_does_not_wait_for_one(
    pair: ModelPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law 3: it has a first step of its own, of one draft token if K is automatic, and the text it gets alone."""
    monkeypatch.setattr(Batch, "is_invariant", True)
    engine = SharedEngine(pair, max_sequences=6, policy=Policy(long_step=-1.0))
    running = decoding(engine)
    for number in range(10):
        request = asked(number, draft_length=AUTO)
        [run] = engine.generate(request)
        assert run.token_ids == alone(pair, request)
        if run.method not in ("verifier_only", "drafter_only"):
            assert run.rounds[0].draft_length == 1
    at_once = engine.generate([asked(number) for number in range(5)])
    assert [run.token_ids for run in at_once] == [alone(pair, asked(number)) for number in range(5)]
    short = asked(2, max_new_tokens=1)  # over with its first step
    assert engine.generate(short)[0].token_ids == alone(pair, short)
    running.close()
    engine.close()


def test_a_first_step_that_fails_is_tried_again_with_all(
    pair: ModelPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Batch, "is_invariant", True)
    engine = SharedEngine(pair, policy=Policy(long_step=-1.0))
    running = decoding(engine)
    step, threw = Batch.step, []

    def failing(self: Batch, **more: Any) -> Any:
        if more.get("short"):
            threw.append(1)
            raise RuntimeError("a fault that passes")
        return step(self, **more)

    monkeypatch.setattr(Batch, "step", failing)
    assert engine.generate(asked(1))[0].token_ids == alone(pair, asked(1))
    assert threw == [1]
    running.close()
    engine.close()


@pytest.mark.parametrize(("step", "reading"), [(0.0, 0.0), (0.1, 0.3), (0.5, 1.0), (2.0, 2.0)])
def test_prompts_are_read_for_longer_than_a_round_but_do_not_hold_texts_up(
    step: float, reading: float
) -> None:
    assert Policy().reading_seconds(step) == pytest.approx(reading)


def test_prompts_that_begin_alike_are_read_once_and_no_text_changes(
    pair: ModelPair, shared: SharedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prompts that begin alike: the second one reads only where it is new, and law 3 holds."""
    common = [40 + position % 30 for position in range(50)]
    prompts = [[*common, 5, 6, 7], [*common, 9, 8], common[:40], [*common, 5, 6, 7, 8], [3, *common]]
    requests = [asked(number, token_ids=ids, method="speed") for number, ids in enumerate(prompts)]
    expected = [alone(pair, request) for request in requests]
    read: list[int] = []
    prefill = ModelRunner.read

    def count(self: ModelRunner, tokens: torch.Tensor, *args: Any, **more: Any) -> None:
        read.append(tokens.shape[1])
        prefill(self, tokens, *args, **more)

    monkeypatch.setattr(ModelRunner, "read", count)
    news = []
    for request, ids in zip(requests, expected, strict=True):
        read.clear()
        assert shared.generate(request)[0].token_ids == ids
        news.append(sum(read))
    # All but the last token of each, by both models.
    assert news == [2 * 52, 2 * 1, 0, 2 * 1, 2 * 50]


def test_slots_go_to_the_visitors_who_have_fewest(shared: SharedEngine) -> None:
    """Fairness: a visitor who asked for many texts first does not keep one who asks for a single one waiting."""
    greedy = shared.stream([endless(seed=seed) for seed in range(12)], visitor="greedy")
    while not isinstance(next(greedy), Decided):
        pass
    stop = threading.Event()
    modest = shared.stream(endless(), visitor="modest", stop=stop)
    positions = []
    for event in modest:
        if isinstance(event, Waiting):
            positions.append(event.queue_position)
        if isinstance(event, Started):
            break
        next(greedy)
        if positions == [1]:  # the next free slot is theirs, before the six that wait already
            greedy.close()
    assert positions[:1] in ([1], [])
    modest.close()


def test_queued_requests_see_their_position_and_a_full_queue_refuses(pair: ModelPair) -> None:
    """The queue is bounded, and positions fall as others leave."""
    engine = SharedEngine(pair, max_sequences=1, queue=2)
    stops = [threading.Event() for _ in range(3)]
    streams = [engine.stream(endless(), stop=stop, visitor=str(number)) for number, stop in enumerate(stops)]
    assert isinstance(next(streams[0]), Started | Waiting)
    while not isinstance(next(streams[0]), Decided):
        pass
    assert next(streams[1]) == Waiting(0, 1)
    assert next(streams[2]) == Waiting(0, 2)
    with pytest.raises(BusyError, match="queue is full"):
        engine.stream(endless(), visitor="late")
    engine.call(lambda: None)
    assert engine.statistics.refused == 1
    stops[0].set()
    assert [event.run.stop_reason for event in streams[0] if isinstance(event, Finished)] == ["cancelled"]
    heard = []
    for event in streams[2]:
        heard.append(event)
        if event == Waiting(0, 1):
            break
    assert Waiting(0, 1) in heard
    streams[1].close()
    streams[2].close()
    engine.close()


def test_stopping_waiting_or_running_ends_a_run_and_its_text_is_a_prefix(
    pair: ModelPair, shared: SharedEngine
) -> None:
    """Law 6: nothing past the end."""
    stop = threading.Event()
    tokens = 0
    long = asked(
        0, max_new_tokens=1000
    )  # rounds are read a few times a second: it must not have ended by then
    for event in shared.stream(long, stop=stop):
        tokens += isinstance(event, Decided)
        if tokens == 3:
            stop.set()
        if isinstance(event, Finished):
            run = event.run
    assert run.stop_reason == "cancelled"
    whole = alone(pair, long)
    assert run.token_ids == whole[: len(run.token_ids)]
    assert len(run.token_ids) < len(whole)


def test_a_deadline_ends_a_run_and_keeps_its_text(pair: ModelPair) -> None:
    """Law 6: time counts from asking; it is not the clock on the wall."""
    engine = SharedEngine(pair, seconds=0.3)
    [run] = engine.generate(endless())
    assert run.stop_reason == "time"
    assert run.token_ids == alone(pair, asked(3, max_new_tokens=len(run.token_ids)))
    engine.close()


def test_a_request_without_a_slot_at_its_deadline_is_refused(pair: ModelPair) -> None:
    engine = SharedEngine(pair, max_sequences=1)
    first = engine.stream(endless(), visitor="first")
    next(first)
    engine.seconds = 0.3
    second = engine.stream(endless(), visitor="second")
    with pytest.raises(BusyError, match="too busy"):
        list(second)
    first.close()
    engine.close()


def test_a_wall_clock_that_jumps_ends_nothing(
    pair: ModelPair, shared: SharedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deadlines run on a clock that only goes forward."""
    jumps = iter(range(10**6))
    monkeypatch.setattr(time, "time", lambda: 1e9 * (-1) ** next(jumps))
    [run] = shared.generate(asked(2))
    assert run.token_ids == alone(pair, asked(2))


def failing(model: Any, monkeypatch: pytest.MonkeyPatch, when: Any, error: Exception) -> list[int]:
    """Let a model's forward passes raise where `when` says so of the ids that go in; counts how often."""
    forward, failed = model.forward, []

    def maybe(*args: Any, **more: Any) -> Any:
        if when(more["input_ids"]):
            failed.append(1)
            raise type(error)(*error.args)  # one that was raised before holds its frames
        return forward(*args, **more)

    monkeypatch.setattr(model, "forward", maybe)
    return failed


POISON = 61
"""A token id that is only in the prompt of the request that shall fail."""


def poisoned(**more: Any) -> Request:
    return asked(3, token_ids=[10, 20, POISON], max_new_tokens=12, **more)


def test_a_request_on_which_a_model_fails_takes_only_itself_down(
    pair: ModelPair, shared: SharedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forward pass raises whenever one sequence's token is among its inputs: the others' texts are untouched."""
    others = [asked(number, max_new_tokens=20, forbidden_tokens=[POISON]) for number in (0, 1, 2)]
    expected = [alone(pair, request) for request in others]
    failed = failing(
        pair.verifier, monkeypatch, lambda ids: bool((ids == POISON).any()), RuntimeError("kernel fault")
    )
    found: list[Any] = [None] * 4

    def ask(number: int, request: Request) -> None:
        try:
            [found[number]] = shared.generate(request)
        except EngineError as error:
            found[number] = error

    requests = [*others, poisoned()]
    in_threads([lambda n=n, r=r: ask(n, r) for n, r in enumerate(requests)])
    assert failed
    assert isinstance(found[3], EngineError)
    assert "failed on this request" in str(found[3])
    assert "kernel" not in str(found[3])
    assert [run.token_ids for run in found[:3]] == expected
    assert shared.is_alive
    monkeypatch.undo()
    assert shared.generate(poisoned())[0].token_ids == alone(pair, poisoned())


def test_a_fault_that_passes_costs_nobody_anything(
    pair: ModelPair, shared: SharedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One forward pass fails once: every sequence goes on, with its own text."""
    requests = [asked(number, max_new_tokens=20) for number in range(5)]
    expected = [alone(pair, request) for request in requests]
    passes = iter(range(10**6))
    failed = failing(pair.verifier, monkeypatch, lambda _: next(passes) == 12, RuntimeError("a cosmic ray"))
    assert [run.token_ids for run in shared.generate(requests)] == expected
    assert failed == [1]


def test_when_memory_runs_out_the_longest_sequence_is_ended(
    pair: ModelPair, shared: SharedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = [asked(number, max_new_tokens=20) for number in range(3)]
    expected = [alone(pair, request) for request in short]
    long = shared.stream(endless(), visitor="long")
    while not isinstance(next(long), Decided):
        pass
    failing(
        pair.verifier,
        monkeypatch,
        lambda ids: ids.shape[0] > 3,
        torch.OutOfMemoryError("CUDA out of memory"),
    )
    runs = shared.generate(short)
    assert [run.token_ids for run in runs] == expected
    with pytest.raises(EngineError, match="Memory ran out with 4 request"):
        list(long)


def test_numbers_that_are_not_finite_end_only_the_sequences_that_have_them(
    pair: ModelPair, shared: SharedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = asked(0, max_new_tokens=30, forbidden_tokens=[POISON])
    expected = alone(pair, other)
    forward = pair.verifier.forward

    def spoiled(*args: Any, **more: Any) -> Any:
        output = forward(*args, **more)
        output.logits[(more["input_ids"] == POISON).any(-1)] = float("nan")
        return output

    monkeypatch.setattr(pair.verifier, "forward", spoiled)
    found: list[Any] = [None, None]

    def ask(number: int, request: Request) -> None:
        try:
            [found[number]] = shared.generate(request)
        except EngineError as error:
            found[number] = error

    in_threads([lambda: ask(0, other), lambda: ask(1, poisoned())])
    assert "not finite" in str(found[1])
    assert found[0].token_ids == expected


def test_a_fault_while_a_round_is_recorded_ends_only_its_own_sequence(
    pair: ModelPair, shared: SharedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever breaks while one sequence's round is recorded, those recorded before and after it lose no token."""
    requests = [asked(number, method="speed", max_new_tokens=20) for number in range(3)]
    expected = [alone(pair, request) for request in requests]
    push, struck = Detokenizer.push, []
    made: dict[int, Sequence] = {}
    built = Sequence.__init__

    def note(self: Sequence, index: int, request: Request, *args: Any, **more: Any) -> None:
        built(self, index, request, *args, **more)
        made[requests.index(request)] = self

    monkeypatch.setattr(Sequence, "__init__", note)

    def breaks(self: Detokenizer, token: int) -> str:
        if self is made[1].detokenizer and made[1].emitted > 4:
            struck.append(token)
            raise KeyError("a label")
        return push(self, token)

    monkeypatch.setattr(Detokenizer, "push", breaks)
    found: list[Any] = [None] * 3

    def ask(number: int) -> None:
        try:
            [found[number]] = shared.generate(requests[number])
        except EngineError as error:
            found[number] = error

    in_threads([lambda number=number: ask(number) for number in range(3)])
    assert struck
    assert "failed on this request" in str(found[1])
    assert [found[0].token_ids, found[2].token_ids] == [expected[0], expected[2]]


def test_a_fault_in_the_engine_itself_is_a_sentence_and_it_starts_anew(
    pair: ModelPair, shared: SharedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Scheduler, "admit", lambda *_: 1 / 0)
        with pytest.raises(EngineError, match="Something broke"):
            shared.generate(asked(0))
    assert shared.generate(asked(0))[0].token_ids == alone(pair, asked(0))


def test_when_the_thread_ends_by_a_fault_every_caller_is_told(
    pair: ModelPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits, and whoever asks later."""
    engine = SharedEngine(pair)
    running = decoding(engine)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    monkeypatch.setattr(Scheduler, "leaving", lambda *_: exit())
    with pytest.raises(EngineError, match="being stopped"):
        list(running)
    with pytest.raises(EngineError, match="being stopped"):
        engine.call(lambda: 1)
    engine.close()
    assert not engine.is_alive


def test_what_does_not_fit_is_refused_at_once(shared: SharedEngine) -> None:
    with pytest.raises(RequestError, match="no id of this pair"):
        shared.stream(Request(token_ids=[10**6]))
    assert shared.statistics.waiting == shared.statistics.finished.total() == 0


def test_a_closed_stream_holds_no_slot(shared: SharedEngine) -> None:
    """A stream closed because its client has gone frees its slot while others go on."""
    stays = shared.stream(endless())
    next(stays)
    for _ in range(10):
        goes = shared.stream([endless(), endless(seed=1)])
        next(goes)
        goes.close()
    for event in stays:
        if isinstance(event, Decided) and shared.statistics.running == 1 and not shared.statistics.waiting:
            break
    stays.close()
    wait_until_idle(shared)
    assert shared.statistics.finished["cancelled"] == 21


def test_closing_ends_all_runs_and_the_thread(pair: ModelPair) -> None:
    before = threading.active_count()
    engine = SharedEngine(pair)
    running = engine.stream(endless())
    next(running)
    engine.close()
    with pytest.raises(EngineError, match="being stopped"):
        list(running)
    with pytest.raises(EngineError, match="being stopped"):
        engine.stream(asked(0))
    with pytest.raises(EngineError, match="being stopped"):
        engine.call(lambda: 1)
    assert threading.active_count() == before


def test_an_engine_that_is_dropped_leaves_no_thread(pair: ModelPair) -> None:
    """Not before its last stream: that goes on until it ends."""
    before = threading.active_count()
    stream = SharedEngine(pair).stream(asked(0))
    assert finished(stream)[0].token_ids == alone(pair, asked(0))
    assert threading.active_count() == before + 1
    del stream
    for _ in range(1000):
        if threading.active_count() == before:
            return
        time.sleep(0.01)
    raise AssertionError("the thread goes on")


def test_other_work_on_the_models_is_done_between_rounds(shared: SharedEngine) -> None:
    running = shared.stream(endless())
    next(running)
    assert shared.call(threading.current_thread) not in (None, threading.current_thread())
    with pytest.raises(ZeroDivisionError):
        shared.call(lambda: 1 / 0)
    assert any(isinstance(next(running), Decided) for _ in range(50))
    running.close()


@pytest.mark.parametrize("kind", ["own", "shared"])
def test_streams_that_were_never_started_hold_no_slot(pair: ModelPair, kind: str) -> None:
    """A hundred are opened and kept, on an engine of two slots and a queue of one: the next request is served at once."""
    engine = (
        SharedEngine(pair, max_sequences=2, queue=1) if kind == "shared" else Engine(pair, max_sequences=2)
    )
    opened = [engine.stream([endless(), endless(seed=1)], visitor=str(number)) for number in range(100)]
    events = list(engine.stream(asked(0), visitor="late"))
    assert not any(isinstance(event, Waiting) and event.queue_position > 0 for event in events[1:])
    assert [event.run.token_ids for event in events if isinstance(event, Finished)] == [alone(pair, asked(0))]
    assert not any(isinstance(event, Waiting) and event.queue_position > 1 for event in events)
    # They were not lost: one that is started now is served.
    assert any(isinstance(next(opened[0]), Decided) for _ in range(10))
    opened[0].close()
    assert list(opened[0]) == []
    if isinstance(engine, SharedEngine):
        wait_until_idle(engine)
        assert engine.statistics.finished["cancelled"] == 2
        engine.close()


def test_a_stream_that_is_dropped_gives_its_slot_to_the_next(pair: ModelPair) -> None:
    """Nobody refers to it any more, and no garbage collection is needed to notice."""
    engine = SharedEngine(pair, max_sequences=1)
    gc.disable()
    try:
        stream = engine.stream(endless(), visitor="first")
        next(stream)
        del stream
        assert engine.generate(asked(0))[0].token_ids == alone(pair, asked(0))
    finally:
        gc.enable()
        engine.close()
    assert engine.statistics.finished == {"cancelled": 1, "length": 1}


def test_one_run_of_a_stream_is_aborted_and_the_others_go_on(pair: ModelPair, shared: SharedEngine) -> None:
    """Its text is a prefix, its `Finished` comes once, and with more runs than slots those that wait can be aborted too."""
    requests = [asked(number, max_new_tokens=25) for number in range(8)]
    stream = shared.stream(requests)
    ends: list[tuple[int, str, list[int]]] = []
    for event in stream:
        if isinstance(event, Decided) and event.index == 0:
            stream.abort(0)
        if isinstance(event, Started) and event.index == 0:
            stream.abort(7)
        if isinstance(event, Finished):
            ends.append((event.index, event.run.stop_reason, event.run.token_ids))
    assert sorted(index for index, *_ in ends) == list(range(8))
    for index, reason, ids in ends:
        whole = alone(pair, requests[index])
        if index in (0, 7):
            assert (reason, ids) == ("cancelled", whole[: len(ids)])
            assert len(ids) < len(whole)
        else:
            assert (reason, ids) == ("length", whole)
    assert next(ids for index, _, ids in ends if index == 7) == []


def test_a_stream_aborted_as_a_whole_yields_all_its_ends(shared: SharedEngine) -> None:
    """Unlike `close`, after which nothing comes; aborting before the start does the same."""
    running = shared.stream([endless(), endless(seed=1)])
    next(running)
    running.abort()
    never = shared.stream(endless())
    never.abort(reason="time")
    assert [event.run.stop_reason for event in running if isinstance(event, Finished)] == ["cancelled"] * 2
    assert [event.run.stop_reason for event in never if isinstance(event, Finished)] == ["time"]


def test_a_stream_that_another_thread_closes_ends(shared: SharedEngine) -> None:
    """The thread that iterates is not left waiting."""
    stream = shared.stream([endless(), endless(seed=1)])
    next(stream)
    reader = threading.Thread(target=lambda: list(stream))
    reader.start()
    stream.close()
    reader.join(30)
    assert not reader.is_alive()
    wait_until_idle(shared)
    assert shared.statistics.finished == {"cancelled": 2}


def test_when_memory_is_short_the_prefix_cache_goes_before_anybodys_text(
    pair: ModelPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order is: prefix caches, captured passes, the longest sequence; each step is tried again before the next."""
    engine = SharedEngine(pair, max_sequences=4)
    freed: list[str] = []
    captured = ["some"]
    clear = PrefixCache.clear

    def clear_prefixes(self: PrefixCache) -> bool:
        cleared = clear(self)
        freed.extend(["prefixes"] if cleared else [])
        return cleared

    def free_captures(self: Batch) -> bool:
        freed.append("captures")
        return bool(captured and captured.pop())

    monkeypatch.setattr(PrefixCache, "clear", clear_prefixes)
    monkeypatch.setattr(Batch, "free_memory", free_captures)
    short, long = asked(0, max_new_tokens=20), asked(3, max_new_tokens=60)
    expected = [alone(pair, short), alone(pair, long)]
    engine.generate(asked(1, token_ids=list(range(5, 45))))  # its prompt is cached
    error, failures = torch.OutOfMemoryError("CUDA out of memory"), iter([True])
    with monkeypatch.context() as patch:
        failing(pair.verifier, patch, lambda ids: ids.shape[0] > 1 and next(failures, False), error)
        assert [run.token_ids for run in engine.generate([short, long])] == expected
    assert freed == ["prefixes"] * 2  # both models' caches; nobody's text, and no capture
    beside = decoding(engine, visitor="beside")
    freed.clear()
    failing(pair.verifier, monkeypatch, lambda ids: ids.shape[0] > 1, error)
    assert engine.generate(short)[0].token_ids == expected[0]
    assert [each for each in freed if each == "captures"] == ["captures"] * 2
    with pytest.raises(EngineError, match="Memory ran out with 2 request"):
        list(beside)
    engine.close()


def test_a_prompt_that_memory_has_no_room_for_is_tried_again_without_the_prefix_cache_and_then_fails(
    pair: ModelPair, shared: SharedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retry must not find in the prefix cache what its own first try has put there: it would go on for ever."""
    request = asked(1, token_ids=list(range(5, 45)))
    expected = alone(pair, request)
    failures = iter([True])
    read = ModelRunner.read

    def fails(self: ModelRunner, *args: Any, **more: Any) -> None:
        if self._model is pair.verifier and next(failures, False):
            raise torch.OutOfMemoryError("CUDA out of memory")
        read(self, *args, **more)

    monkeypatch.setattr(ModelRunner, "read", fails)
    assert shared.generate(request)[0].token_ids == expected
    failures = itertools.repeat(True)
    with pytest.raises(EngineError, match="Memory ran out with 1 request"):
        shared.generate(request)


@pytest.mark.parametrize("end", ["finished", "closed", "aborted", "failed"])
@pytest.mark.parametrize("kind", ["own", "shared"])
def test_with_garbage_collection_switched_off_nothing_of_a_run_survives_it(
    pair: ModelPair, kind: str, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No cycle holds a sequence or a KV cache: many runs take no more memory than one."""
    engine = SharedEngine(pair, max_sequences=3) if kind == "shared" else Engine(pair, max_sequences=3)
    made: list[weakref.ref[Any]] = []
    built = Sequence.__init__

    def note(self: Sequence, *args: Any, **more: Any) -> None:
        built(self, *args, **more)
        made.extend((weakref.ref(self), weakref.ref(self.run)))

    layers: list[weakref.ref[Any]] = []
    built_layer = KVCacheLayer.__init__

    def note_layer(self: KVCacheLayer, *args: Any) -> None:
        built_layer(self, *args)
        layers.append(weakref.ref(self))

    monkeypatch.setattr(Sequence, "__init__", note)
    monkeypatch.setattr(KVCacheLayer, "__init__", note_layer)
    for name in ("engine_loop", "recovery"):  # pytest keeps records, and these have errors
        monkeypatch.setattr(logging.getLogger(f"specviz.serving.{name}"), "disabled", True)
    if end == "failed":
        failing(pair.verifier, monkeypatch, lambda ids: True, RuntimeError("kernel fault"))
    gc.collect()
    gc.disable()
    try:
        for seed in range(5):
            _run_to(end, engine, [asked(2, seed=seed, max_new_tokens=8), poisoned(seed=seed)])
            if isinstance(engine, SharedEngine):
                wait_until_idle(engine)
                engine.call(lambda: None)  # the thread is between two turns
        assert len(made) == 20
        assert layers
        assert [each() for each in made + layers if each() is not None] == []
    finally:
        gc.enable()
        if isinstance(engine, SharedEngine):
            engine.close()


def _run_to(end: str, engine: BaseEngine, requests: list[Request]) -> None:
    """Serve requests to one of their ends; all that is known of it is forgotten on return."""
    stream = engine.stream(requests)
    try:
        for event in stream:
            if end == "closed" and isinstance(event, Decided):
                stream.close()
            elif end == "aborted" and isinstance(event, Decided):
                stream.abort()
    except (RuntimeError, EngineError):
        assert end == "failed"
