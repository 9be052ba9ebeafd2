"""The shared engine: whoever asks, whenever, and whatever goes wrong beside them, gets the text that is theirs."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch

from specviz.engine.engine import Decided, Engine, Finished, Started, Waiting
from specviz.errors import BusyError, EngineError, RequestError
from specviz.models.pairs import ModelPair
from specviz.models.tokenizer import Detokenizer
from specviz.runtime.model_runner import SlotModel
from specviz.schema.settings import Request
from specviz.schema.trace import Run
from specviz.serving.shared_engine import SharedEngine
from tests.support.tiny import tiny_pair

METHODS = ("speed", "cascade_tokenV3", "verifier_only", "cascade_opt", "drafter_only")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> ModelPair:
    """Texts end where they were asked to, or after thousands of tokens."""
    pair = tiny_pair("llama", tmp_path_factory.mktemp("shared"))
    return dataclasses.replace(pair, eos_token_ids=frozenset(), context_length=8000)


@pytest.fixture
def shared(pair: ModelPair) -> Iterator[SharedEngine]:
    engine = SharedEngine(pair, max_rows=6, queue=64)
    yield engine
    engine.close()


def asked(number: int, **more: Any) -> Request:
    """One of many different requests."""
    settings: dict[str, Any] = {
        "token_ids": [7 + (number * 13 + place) % 60 for place in range(1 + (number * 7) % 23)],
        "method": METHODS[number % len(METHODS)],
        "draft_length": 1 + number % 5,
        "seed": number,
        "max_new_tokens": 10 + 3 * (number % 5),
    }
    return Request(**settings | more)


def endless(**more: Any) -> Request:
    """A request that goes on until it is stopped."""
    return asked(3, max_new_tokens=8000, **more)


def in_threads(functions: Sequence[Any]) -> None:
    threads = [threading.Thread(target=function) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)


def alone(pair: ModelPair, request: Request) -> list[int]:
    return Engine(pair).generate(request)[0].token_ids


def test_whoever_joins_whenever_each_gets_the_text_of_its_request_alone(
    pair: ModelPair, shared: SharedEngine
) -> None:
    """Law 3: thirty requests from thirty threads, more than there are rows, joining and leaving as they come."""
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
    assert shared.tally.finished["length"] + shared.tally.finished["eos"] == 30
    assert shared.tally.tokens == sum(len(run.tokens) for run in found.values())
    while not shared.is_idle or shared.tally.running:
        time.sleep(0.01)


def test_long_prompts_are_read_between_the_rounds_of_others(
    pair: ModelPair, shared: SharedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prompt of many stretches does not stop those who write; law 3 holds for both."""
    monkeypatch.setattr("specviz.serving.shared_engine.CHUNK", 5)
    long = asked(1, token_ids=[5 + place % 50 for place in range(90)])
    told: list[str] = []
    running = shared.stream(endless())
    while not isinstance(next(running), Decided):
        pass

    def read() -> None:
        [run] = shared.generate(long)
        told.append("read")
        assert run.token_ids == alone(pair, long)

    reader = threading.Thread(target=read)
    reader.start()
    between = 0
    while not told:
        between += isinstance(next(running), Decided)
    reader.join()
    running.close()
    assert between > 90 / 5


def test_what_was_read_lately_is_not_read_again_and_no_text_changes(
    pair: ModelPair, shared: SharedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prompts that begin alike: the second one reads only where it is new, and law 3 holds."""
    common = [40 + place % 30 for place in range(50)]
    prompts = [[*common, 5, 6, 7], [*common, 9, 8], common[:40], [*common, 5, 6, 7, 8], [3, *common]]
    requests = [asked(number, token_ids=ids, method="speed") for number, ids in enumerate(prompts)]
    expected = [alone(pair, request) for request in requests]
    read: list[int] = []
    prefill = SlotModel.read

    def count(self: SlotModel, tokens: torch.Tensor, *args: Any, **more: Any) -> None:
        read.append(tokens.shape[1])
        prefill(self, tokens, *args, **more)

    monkeypatch.setattr(SlotModel, "read", count)
    news = []
    for request, ids in zip(requests, expected, strict=True):
        read.clear()
        assert shared.generate(request)[0].token_ids == ids
        news.append(sum(read))
    # All but the last token of each, by both models.
    assert news == [2 * 52, 2 * 1, 0, 2 * 1, 2 * 50]


def test_rows_go_to_those_who_have_fewest(shared: SharedEngine) -> None:
    """Fairness: a visitor who asked for many texts first does not keep one who asks for a single one waiting."""
    greedy = shared.stream([endless(seed=seed) for seed in range(12)], visitor="greedy")
    while not isinstance(next(greedy), Decided):
        pass
    stop = threading.Event()
    modest = shared.stream(endless(), visitor="modest", stop=stop)
    places = []
    for event in modest:
        if isinstance(event, Waiting):
            places.append(event.place)
        if isinstance(event, Started):
            break
        next(greedy)
        if places == [1]:  # the next row that is free is theirs, before the six that wait already
            greedy.close()
    assert places[:1] in ([1], [])
    modest.close()


def test_everybody_is_told_their_place_and_a_full_queue_says_no(pair: ModelPair) -> None:
    """The queue is bounded, and each who waits hears a place that falls as others leave."""
    engine = SharedEngine(pair, max_rows=1, queue=2)
    stops = [threading.Event() for _ in range(3)]
    streams = [engine.stream(endless(), stop=stop, visitor=str(number)) for number, stop in enumerate(stops)]
    assert isinstance(next(streams[0]), Started | Waiting)
    while not isinstance(next(streams[0]), Decided):
        pass
    assert next(streams[1]) == Waiting(0, 1)
    assert next(streams[2]) == Waiting(0, 2)
    with pytest.raises(BusyError, match="queue is full"):
        engine.stream(endless(), visitor="late")
    assert engine.tally.refused == 1
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
    stop = threading.Event()
    tokens = 0
    for event in shared.stream(asked(0, max_new_tokens=60), stop=stop):
        tokens += isinstance(event, Decided)
        if tokens == 3:
            stop.set()
        if isinstance(event, Finished):
            run = event.run
    assert run.stop_reason == "cancelled"
    whole = alone(pair, asked(0, max_new_tokens=60))
    assert run.token_ids == whole[: len(run.token_ids)]
    assert len(run.token_ids) < len(whole)


def test_a_deadline_ends_a_run_and_keeps_its_text(pair: ModelPair) -> None:
    """Time counts from asking; it is not the clock on the wall."""
    engine = SharedEngine(pair, seconds=0.3)
    [run] = engine.generate(endless())
    assert run.stop_reason == "time"
    assert run.token_ids == alone(pair, asked(3, max_new_tokens=len(run.token_ids)))
    engine.close()


def test_who_never_got_a_row_before_the_deadline_is_told_to_come_again(pair: ModelPair) -> None:
    engine = SharedEngine(pair, max_rows=1)
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
            raise error
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
    """A forward pass raises whenever one row's token is among its inputs: the others' texts are untouched."""
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
    """One forward pass fails once: every row goes on, with its own text."""
    requests = [asked(number, max_new_tokens=20) for number in range(5)]
    expected = [alone(pair, request) for request in requests]
    passes = iter(range(10**6))
    failed = failing(pair.verifier, monkeypatch, lambda _: next(passes) == 12, RuntimeError("a cosmic ray"))
    assert [run.token_ids for run in shared.generate(requests)] == expected
    assert failed == [1]


def test_when_memory_runs_out_the_longest_makes_room(
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


def test_numbers_that_are_not_finite_end_only_the_rows_that_have_them(
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


def test_a_fault_while_a_round_is_told_ends_only_its_own_row(
    pair: ModelPair, shared: SharedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever breaks in writing down what one row has decided, those told before and after it lose no token."""
    requests = [asked(number, method="speed", max_new_tokens=20) for number in range(3)]
    expected = [alone(pair, request) for request in requests]
    push, struck = Detokenizer.push, []

    def breaks(self: Detokenizer, token: int) -> str:
        row = next(row for row in shared._batch.rows if row.detokenizer is self)
        if row.request == requests[1] and len(row.ids) > row.prompt_length + 4:
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
        patch.setattr(shared, "_admit", lambda: 1 / 0)
        with pytest.raises(EngineError, match="Something broke"):
            shared.generate(asked(0))
    assert shared.generate(asked(0))[0].token_ids == alone(pair, asked(0))


def test_what_does_not_fit_is_refused_at_once(shared: SharedEngine) -> None:
    with pytest.raises(RequestError, match="no id of this pair"):
        shared.stream(Request(token_ids=[10**6]))
    assert shared.is_idle


def test_who_goes_leaves_no_row_behind(shared: SharedEngine) -> None:
    """A closed stream, its client killed, frees its row while others write on."""
    stays = shared.stream(endless())
    next(stays)
    for _ in range(10):
        goes = shared.stream([endless(), endless(seed=1)])
        next(goes)
        goes.close()
    for event in stays:
        if isinstance(event, Decided) and shared.tally.running == 1 and not shared.tally.waiting:
            break
    stays.close()
    while not shared.is_idle:
        time.sleep(0.01)
    assert shared._batch.rows == []
    assert shared._of == {}
    assert shared.tally.finished["cancelled"] == 21


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


def test_other_work_on_the_models_is_done_between_rounds(shared: SharedEngine) -> None:
    running = shared.stream(endless())
    next(running)
    assert shared.call(threading.current_thread) is shared._thread
    with pytest.raises(ZeroDivisionError):
        shared.call(lambda: 1 / 0)
    assert any(isinstance(next(running), Decided) for _ in range(50))
    running.close()
