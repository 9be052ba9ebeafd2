"""The shared engine: whatever else it serves, and whatever fails, each request gets the text that it gets alone."""

from __future__ import annotations

import dataclasses
import gc
import itertools
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
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
from specviz.runtime.kv_cache import KVCache
from specviz.runtime.model_runner import ModelRunner
from specviz.runtime.prefix_cache import PrefixCache
from specviz.schema.settings import AUTO, Request
from specviz.serving import engine_loop
from specviz.serving.shared_engine import SharedEngine
from tests.support.tiny import Pairs
from tests.support.waiting import wait_until

METHODS = ("speed", "cascade_tokenV3", "verifier_only", "cascade_opt", "drafter_only")
OUT_OF_MEMORY = torch.OutOfMemoryError("CUDA out of memory")
POISON = 61
"""A token id that only the prompt of a request that shall fail has."""

Start = Callable[..., SharedEngine]
Alone = Callable[[Request], list[int]]


@pytest.fixture(scope="module")
def pair(pairs: Pairs) -> ModelPair:
    """Its texts end where they were asked to, or after thousands of tokens."""
    return dataclasses.replace(pairs("llama"), eos_token_ids=frozenset(), context_length=8000)


@pytest.fixture(scope="module")
def alone(pair: ModelPair) -> Alone:
    """The ids that a request gets alone."""
    return cache(lambda request: Engine(pair).generate(request)[0].token_ids)


@pytest.fixture
def start(pair: ModelPair) -> Iterator[Start]:
    """Starts shared engines, and closes them after the test."""
    engines = []

    def start(**settings: Any) -> SharedEngine:
        engines.append(SharedEngine(pair, **{"max_sequences": 6} | settings))
        return engines[-1]

    yield start
    for engine in engines:
        engine.close()


@pytest.fixture
def shared(start: Start) -> SharedEngine:
    return start()


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


def poisoned(**more: Any) -> Request:
    return asked(3, token_ids=[10, 20, POISON], max_new_tokens=12, **more)


def decoding(engine: SharedEngine, **more: Any) -> Stream[Event | Waiting]:
    """A stream that decodes until it is closed."""
    stream = engine.stream(endless(), **more)
    while not isinstance(next(stream), Decided):
        pass
    return stream


def wait_until_idle(engine: SharedEngine) -> None:
    """Until all messages are received, and no sequence decodes or waits."""

    def is_idle() -> bool:
        engine.call(lambda: None)
        engine.call(lambda: None)  # a turn lies between two calls of one thread
        return not (engine.statistics.running or engine.statistics.waiting)

    wait_until(is_idle)


def served(engine: SharedEngine, requests: list[Request], pause: float = 0.0) -> list[Any]:
    """The run of each request, sent by a thread of its own, or its error."""

    def ask(number: int) -> Any:
        time.sleep(pause * (number % 7))
        try:
            return engine.generate(requests[number])[0]
        except EngineError as error:
            return error

    with ThreadPoolExecutor(len(requests)) as pool:
        return list(pool.map(ask, range(len(requests)), timeout=60))


def failing(model: Any, monkeypatch: pytest.MonkeyPatch, when: Any, error: Exception) -> list[int]:
    """Let a model's forward passes raise where `when` says so of their ids; counts how often."""
    forward, failed = model.forward, []

    def maybe(*args: Any, **more: Any) -> Any:
        if when(more["input_ids"]):
            failed.append(1)
            raise type(error)(*error.args)  # one that was raised before holds its frames
        return forward(*args, **more)

    monkeypatch.setattr(model, "forward", maybe)
    return failed


# ---- joining and leaving -----------------------------------------------------------------------------------


def test_requests_that_join_at_any_time_get_the_texts_they_get_alone(
    alone: Alone, shared: SharedEngine
) -> None:
    """Law 3, with more requests than slots."""
    requests = [asked(number) for number in range(12)]
    runs = served(shared, requests, pause=0.01)
    assert [run.token_ids for run in runs] == [alone(request) for request in requests]
    assert max(run.neighbours for run in runs) > 0
    assert shared.statistics.finished.total() == 12
    assert shared.statistics.tokens == sum(len(run.tokens) for run in runs)
    wait_until_idle(shared)


def test_long_prompts_are_read_between_the_rounds_of_others(
    alone: Alone, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law 3: a prompt of many chunks does not stall those that decode."""
    monkeypatch.setattr("specviz.runtime.model_runner._CPU_CHUNK", 5)
    monkeypatch.setattr(engine_loop, "READING_SHARE", 0.0)
    engine = start()
    long = asked(1, token_ids=[5 + position % 50 for position in range(90)])
    running = decoding(engine)
    begin = engine.statistics.rounds
    for event in engine.stream(long):
        if isinstance(event, Started):
            assert engine.statistics.rounds > begin
        if isinstance(event, Finished):
            assert event.run.token_ids == alone(long)
    running.close()


def test_a_short_prompt_overtakes_long_ones_and_none_starves() -> None:
    left, chosen = [40, 1], list[int]()
    while left[0]:
        chosen.append(engine_loop.next_prefill(left, len(chosen)))
        left[chosen[-1]] -= 1
        left[1] = left[1] or 1  # the next newcomer
    assert chosen[:3] == [0, 1, 1]
    assert len(chosen) <= 40 * engine_loop.OLDEST_SHARE


def test_if_steps_are_long_a_joining_sequence_has_a_first_step_of_its_own(
    alone: Alone, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law 3. The step has one draft token if K is automatic; if it fails, the joint step tries again."""
    monkeypatch.setattr(Batch, "is_invariant", True)
    monkeypatch.setattr(engine_loop, "LONG_STEP", -1.0)
    engine = start()
    running = decoding(engine)
    for request in (asked(0, draft_length=AUTO), asked(1, draft_length=AUTO), asked(2, max_new_tokens=1)):
        [run] = engine.generate(request)
        assert run.token_ids == alone(request)
        if request.draft_length == AUTO:
            assert run.rounds[0].draft_length == 1
    step, threw = Batch.step, []

    def failing(self: Batch, **more: Any) -> Any:
        if more.get("short"):
            threw.append(1)
            raise RuntimeError("a fault that passes")
        return step(self, **more)

    monkeypatch.setattr(Batch, "step", failing)
    assert engine.generate(asked(1))[0].token_ids == alone(asked(1))
    assert threw == [1]
    monkeypatch.setattr(Batch, "step", step)
    with monkeypatch.context() as patch:
        patch.setattr(Batch, "take", lambda *_: (_ for _ in ()).throw(MemoryError()))
        with pytest.raises(EngineError, match="Memory ran out"):
            engine.generate(asked(1))
    assert next(running)  # only the one that joins has failed
    running.close()


def test_prompts_that_begin_alike_are_read_once_and_no_text_changes(
    alone: Alone, shared: SharedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law 3, with prefix caches."""
    read, prefill = list[int](), ModelRunner.read

    def count(self: ModelRunner, tokens: torch.Tensor, *args: Any, **more: Any) -> None:
        read.append(tokens.shape[1])
        prefill(self, tokens, *args, **more)

    monkeypatch.setattr(ModelRunner, "read", count)
    common = [40 + position % 30 for position in range(50)]
    prompts = [[*common, 5, 6, 7], [*common, 9, 8], common[:40], [3, *common]]
    requests = [asked(number, token_ids=ids, method="speed") for number, ids in enumerate(prompts)]
    expected = [alone(request) for request in requests]
    for request, ids, new in zip(requests, expected, (52, 1, 0, 50), strict=True):
        read.clear()
        assert shared.generate(request)[0].token_ids == ids
        assert sum(read) == 2 * new  # all but the last token, by both models


def test_queued_requests_see_their_position_and_a_full_queue_refuses(start: Start) -> None:
    engine = start(max_sequences=1, queue=2)
    running = decoding(engine, visitor="0")
    queued = [engine.stream(endless(), visitor=name) for name in "12"]
    assert [next(stream) for stream in queued] == [Waiting(0, 1), Waiting(0, 2)]
    with pytest.raises(BusyError, match="queue is full"):
        next(engine.stream(endless(), visitor="late"))
    assert engine.statistics.refused == 1
    running.close()
    assert Waiting(0, 1) in itertools.takewhile(lambda event: not isinstance(event, Started), queued[1])
    for stream in queued:
        stream.close()


@pytest.mark.parametrize("reason", ["cancelled", "time"])
def test_a_run_that_is_cut_short_keeps_a_prefix_of_its_text(alone: Alone, start: Start, reason: str) -> None:
    """Law 6, by a stop and by the deadline."""
    engine = start(seconds=0.3 if reason == "time" else 300)
    stop = threading.Event()
    for event in engine.stream(endless(), stop=stop):
        if isinstance(event, Decided) and reason == "cancelled":
            stop.set()
        if isinstance(event, Finished):
            run = event.run
    assert run.stop_reason == reason
    assert run.token_ids == alone(asked(3, max_new_tokens=len(run.token_ids)))


def test_a_request_without_a_slot_at_its_deadline_is_refused(start: Start) -> None:
    engine = start(max_sequences=1)
    first = decoding(engine, visitor="first")
    engine.seconds = 0.3
    with pytest.raises(BusyError, match="too busy"):
        list(engine.stream(endless(), visitor="second"))
    first.close()


def test_a_request_that_does_not_fit_is_refused_at_once(shared: SharedEngine) -> None:
    with pytest.raises(RequestError):
        shared.stream(Request(token_ids=[10**6]))
    assert shared.statistics.waiting == shared.statistics.finished.total() == 0


# ---- faults ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["raises", "not finite", "recording"])
def test_a_request_that_fails_takes_only_itself_down(
    pair: ModelPair, alone: Alone, shared: SharedEngine, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """The verifier fails on a token of one sequence, or the record of its round does: the others' texts are untouched."""
    others = [asked(number, max_new_tokens=20, forbidden_tokens=[POISON]) for number in (0, 1, 2)]
    expected = [alone(request) for request in others]
    forward, append = pair.verifier.forward, Sequence.append

    def faulty_pass(*args: Any, **more: Any) -> Any:
        rows = (more["input_ids"] == POISON).any(-1)
        if fault == "raises" and rows.any():
            raise RuntimeError("kernel fault")
        output = forward(*args, **more)
        output.logits[rows] = float("nan")
        return output

    def faulty_append(self: Sequence, *args: Any) -> Any:
        if POISON in self.ids and len(self.ids) - self.prompt_length > 4:
            raise KeyError("a label")
        return append(self, *args)

    with monkeypatch.context() as patch:
        if fault == "recording":
            patch.setattr(Sequence, "append", faulty_append)
        else:
            patch.setattr(pair.verifier, "forward", faulty_pass)
        *runs, error = served(shared, [*others, poisoned()])
    assert [run.token_ids for run in runs] == expected
    assert isinstance(error, EngineError)
    assert ("not finite" if fault == "not finite" else "failed on this request") in str(error)
    assert "kernel" not in str(error)
    assert shared.generate(poisoned())[0].token_ids == alone(poisoned())


def test_a_fault_in_the_engine_itself_is_a_sentence_and_it_starts_anew(
    alone: Alone, shared: SharedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Scheduler, "admit", lambda *_: 1 / 0)
        with pytest.raises(EngineError, match="Something broke"):
            shared.generate(asked(0))
    assert shared.generate(asked(0))[0].token_ids == alone(asked(0))


def test_when_memory_is_short_the_prefix_cache_goes_before_anybodys_text(
    pair: ModelPair, alone: Alone, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prefix caches go first, then captured passes, then the longest sequence."""
    engine, freed, captured = start(max_sequences=4), list[str](), ["some"]
    clear = PrefixCache.clear

    def clear_prefixes(self: PrefixCache) -> bool:
        cleared = clear(self)
        freed.extend(["prefixes"] * cleared)
        return cleared

    def free_captures(self: Batch) -> bool:
        freed.append("captures")
        return bool(captured and captured.pop())

    monkeypatch.setattr(PrefixCache, "clear", clear_prefixes)
    monkeypatch.setattr(Batch, "free_captures", free_captures)
    short, long = asked(0, max_new_tokens=20), asked(3, max_new_tokens=60)
    expected = [alone(short), alone(long)]
    engine.generate(asked(1, token_ids=list(range(5, 45))))  # its prompt is cached
    failures = iter([True])
    with monkeypatch.context() as patch:
        failing(pair.verifier, patch, lambda ids: ids.shape[0] > 1 and next(failures, False), OUT_OF_MEMORY)
        assert [run.token_ids for run in engine.generate([short, long])] == expected
    assert freed == ["prefixes"] * 2  # both models' caches, and no text
    beside = decoding(engine, visitor="beside")
    freed.clear()
    failing(pair.verifier, monkeypatch, lambda ids: ids.shape[0] > 1, OUT_OF_MEMORY)
    assert engine.generate(short)[0].token_ids == expected[0]
    assert freed.count("captures") == 2
    with pytest.raises(EngineError, match="Memory ran out with 2 request"):
        list(beside)


def test_memory_that_runs_out_after_a_step_takes_one_run_down(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other sequence repeats the step."""
    keep = Sequence.keep_logits

    def keep_logits(sequence: Sequence) -> None:
        if sequence.request.max_new_tokens == 4:
            raise OUT_OF_MEMORY
        keep(sequence)

    monkeypatch.setattr(Sequence, "keep_logits", keep_logits)
    shared = start()
    streams = [
        shared.stream(asked(each, max_new_tokens=new, return_logits=True)) for each, new in ((0, 4), (1, 20))
    ]
    with ThreadPoolExecutor() as pool:
        lost, whole = (pool.submit(finished, stream) for stream in streams)
        with pytest.raises(EngineError, match="Memory ran out"):
            lost.result()
        [run] = whole.result()
    assert len(run.verifier_logits) == len(run.tokens) == 20
    beside = decoding(shared, visitor="beside")
    cut = shared.stream(asked(0, max_new_tokens=4, return_logits=True, draft_length=1))
    next(each for each in cut if isinstance(each, Decided))
    cut.abort()
    with pytest.raises(EngineError, match="Memory ran out"):
        list(cut)
    next(beside)


def test_a_prompt_that_does_not_fit_into_memory_is_tried_again_without_the_prefix_cache_and_then_fails(
    pair: ModelPair, alone: Alone, shared: SharedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With it, each try would free what the try before has cached, without end."""
    request = asked(1, token_ids=list(range(5, 45)))
    expected = alone(request)
    failures: Iterator[bool] = iter([True])
    failing(pair.verifier.base_model, monkeypatch, lambda _: next(failures, False), OUT_OF_MEMORY)
    assert shared.generate(request)[0].token_ids == expected
    failures = itertools.repeat(True)
    with pytest.raises(EngineError, match="Memory ran out with 1 request"):
        shared.generate(request)


# ---- streams -----------------------------------------------------------------------------------------------


def test_streams_that_were_never_started_hold_no_slot(alone: Alone, start: Start) -> None:
    engine = start(max_sequences=2, queue=1)
    opened = [engine.stream([endless(), endless(seed=1)], visitor=str(number)) for number in range(20)]
    events = list(engine.stream(asked(0), visitor="late"))
    assert not any(isinstance(event, Waiting) and event.queue_position > 1 for event in events)
    assert [event.run.token_ids for event in events if isinstance(event, Finished)] == [alone(asked(0))]
    assert any(isinstance(next(opened[0]), Decided) for _ in range(10))  # one that is started now is served
    opened[0].close()
    assert list(opened[0]) == []


def test_a_stream_that_is_dropped_gives_its_slot_to_the_next(alone: Alone, start: Start) -> None:
    """Without a garbage collection."""
    engine = start(max_sequences=1)
    gc.disable()
    try:
        stream = engine.stream(endless(), visitor="first")
        next(stream)
        del stream
        assert engine.generate(asked(0))[0].token_ids == alone(asked(0))
    finally:
        gc.enable()
    assert engine.statistics.finished == {"cancelled": 1, "length": 1}


def test_one_run_of_a_stream_is_aborted_and_the_others_go_on(alone: Alone, start: Start) -> None:
    """Law 6. A run that waits for a slot can be aborted too."""
    requests = [asked(number, max_new_tokens=60) for number in range(3)]
    stream, runs = start(max_sequences=2).stream(requests), {}
    for event in stream:
        if isinstance(event, Decided) and event.index == 0:
            stream.abort(0)
        if isinstance(event, Started) and event.index == 0:
            stream.abort(2)
        if isinstance(event, Finished):
            runs[event.index] = event.run
    assert runs[0].stop_reason == runs[2].stop_reason == "cancelled"
    assert runs[0].token_ids == alone(requests[0])[: len(runs[0].token_ids)]
    assert len(runs[0].token_ids) < 60
    assert runs[1].token_ids == alone(requests[1])
    assert runs[2].token_ids == []


# ---- the thread --------------------------------------------------------------------------------------------


def test_when_the_thread_dies_every_caller_is_told(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Callers that wait, and later ones."""
    before = threading.active_count()
    engine = start()
    running = decoding(engine)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    monkeypatch.setattr(Scheduler, "leaving", lambda *_: exit())
    for ask in (lambda: list(running), lambda: engine.call(lambda: 1), lambda: list(engine.stream(asked(0)))):
        with pytest.raises(EngineError, match="being stopped"):
            ask()
    engine.close()
    assert not engine.is_alive
    assert threading.active_count() == before


def test_an_engine_that_is_dropped_leaves_no_thread_after_its_last_stream(
    pair: ModelPair, alone: Alone
) -> None:
    before = threading.active_count()
    stream = SharedEngine(pair).stream(asked(0))
    assert finished(stream)[0].token_ids == alone(asked(0))
    assert threading.active_count() == before + 1
    del stream
    wait_until(lambda: threading.active_count() == before)


@pytest.mark.parametrize(
    ("kind", "end"),
    [("own", "closed"), ("own", "failed")]
    + [("shared", end) for end in ("finished", "closed", "aborted", "failed")],
)
def test_without_garbage_collection_nothing_of_a_run_survives_it(
    pair: ModelPair, start: Start, kind: str, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No cycle holds a sequence or a KV cache: many runs take no more memory than one."""
    engine = start(max_sequences=3) if kind == "shared" else Engine(pair, max_sequences=3)
    sequences, buffers = list[weakref.ref[Any]](), list[weakref.ref[Any]]()
    init, layer = Sequence.__init__, KVCache.layer

    def noted_init(self: Sequence, *args: Any, **more: Any) -> None:
        init(self, *args, **more)
        sequences.append(weakref.ref(self))

    def noted_layer(self: KVCache, *args: Any) -> tuple[torch.Tensor, torch.Tensor]:
        made = layer(self, *args)
        buffers.extend(map(weakref.ref, made))
        return made

    monkeypatch.setattr(Sequence, "__init__", noted_init)
    monkeypatch.setattr(KVCache, "layer", noted_layer)
    for name in ("engine_loop", "recovery"):  # pytest keeps records, and these have errors
        monkeypatch.setattr(logging.getLogger(f"specviz.serving.{name}"), "disabled", True)
    if end == "failed":
        failing(pair.verifier, monkeypatch, lambda ids: True, RuntimeError("kernel fault"))
    gc.collect()
    gc.disable()
    try:
        for seed in range(3):
            _run_to(end, engine, [asked(2, seed=seed, max_new_tokens=8), poisoned(seed=seed)])
            if isinstance(engine, SharedEngine):
                wait_until_idle(engine)
                engine.call(lambda: None)  # the thread is between two turns
        assert len(sequences) == 6
        assert buffers
        assert [each() for each in (*sequences, *buffers) if each() is not None] == []
    finally:
        gc.enable()


def _run_to(end: str, engine: BaseEngine, requests: list[Request]) -> None:
    """Serve requests to one of their ends, and keep no reference to them."""
    stream = engine.stream(requests)
    try:
        for event in stream:
            if end == "closed" and isinstance(event, Decided):
                stream.close()
            elif end == "aborted" and isinstance(event, Decided):
                stream.abort()
    except (RuntimeError, EngineError):
        assert end == "failed"
