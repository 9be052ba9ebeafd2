"""Captured forward passes: the texts stay those of plain passes, whatever fails and however buffers grow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from specviz.core.methods import PAPER
from specviz.engine import batch, record
from specviz.engine.engine import Engine
from specviz.engine.events import Started
from specviz.errors import EngineError
from specviz.models.pair import ModelPair
from specviz.runtime.cuda import graphs as module
from specviz.runtime.cuda.graphs import PLAIN, STRIKES, Graphs
from specviz.runtime.cuda.workspace import workspace
from specviz.runtime.model_runner import ModelRunner
from specviz.schema.settings import Request
from specviz.serving.shared_engine import SharedEngine
from tests.support.captures import Captures, captured, captures_on_cpu
from tests.support.tiny import Pairs, tiny_pair


@pytest.fixture
def captures() -> Iterator[Captures]:
    with captures_on_cpu() as captures:
        yield captures


def request(number: int, **options: Any) -> Request:
    """One of many that differ."""
    methods = list(PAPER)
    settings: dict[str, Any] = {
        "token_ids": list(range(40 + number, 52 + number)),
        "method": methods[number % len(methods)],
        "seed": number,
        "temperature": (1.0, 0.0, 0.7)[number % 3],
        "draft_length": ("auto", 3, 5)[number % 3],
        "max_new_tokens": 8 + 5 * number % 11,
    }
    return Request(**settings | options)


def ids(engine: Engine | SharedEngine, requests: list[Request]) -> list[list[int]]:
    return [run.token_ids for run in engine.generate(requests)]


def plain_ids(pair: ModelPair, requests: list[Request]) -> list[list[int]]:
    """What passes write that are not captured."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPECVIZ_GRAPHS", "0")
        return ids(Engine(pair), requests)


# ---- one pass --------------------------------------------------------------------------------------------


def double(values: Tensor) -> Tensor:
    return 2 * values


def often(graphs: Graphs, width: int, forward: Callable[..., Tensor] = double) -> None:
    """Passes of a shape until it is captured and replayed."""
    for _ in range(PLAIN + 2):
        assert graphs.run((width,), forward, [torch.ones(width)]).tolist() == [2.0] * width


def test_a_shape_is_captured_when_it_has_come_back_and_results_are_not_overwritten(
    captures: Captures,
) -> None:
    graphs = Graphs()
    given = [torch.tensor([float(n), torch.inf, -torch.inf, torch.nan]) for n in range(PLAIN + 4)]
    results = [graphs.run((1,), double, [each]) for each in given]
    assert [result[0].item() for result in results] == [2.0 * n for n in range(PLAIN + 4)]
    assert len(graphs) == 1
    assert captures.replays == 4  # one to compare, three to serve


def test_a_shape_that_failed_runs_plainly_and_in_the_end_nothing_more_is_captured(
    captures: Captures, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether memory ran out, the pass waits for the device, or it depends on what only Python knows. What is captured is still used."""
    graphs, calls = Graphs(), list[int]()

    def hungry(values: Tensor) -> Tensor:
        if captures.recording:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return 2 * values

    def waiting(values: Tensor) -> Tensor:
        return 2 * values if values[0].item() > 0 else values

    def counting(values: Tensor) -> Tensor:
        calls.append(1)
        return values + len(calls)

    often(graphs, 1)
    often(graphs, 2, hungry)
    often(graphs, 3)
    often(graphs, 4, waiting)
    found = [graphs.run((5,), counting, [torch.zeros(1)]).item() for _ in range(6)]
    assert found == [1, 2, 3, 5, 6, 7]  # the fourth call was the capture's
    assert (len(graphs), len(caplog.records)) == (2, 3)
    captures.fails = True
    for width in range(6, 6 + STRIKES):
        often(graphs, width)
    assert len(caplog.records) == 3 + 1  # three in a row
    before = captures.replays
    often(graphs, 1)
    assert (captures.replays - before, graphs.enabled) == (PLAIN + 2, True)


def test_freed_captures_are_made_again_in_another_pool(captures: Captures) -> None:
    graphs = Graphs()
    for _ in range(3):
        often(graphs, 1)
        assert len(graphs) == 1
        graphs.clear()


def test_captures_are_bounded(captures: Captures, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 4)
    graphs = Graphs()
    for length in range(1, 7):
        often(graphs, length)
    assert len(graphs) == 4


# ---- texts -----------------------------------------------------------------------------------------------


def test_captured_passes_write_the_texts_of_plain_ones(captures: Captures, pairs: Pairs) -> None:
    """Nine methods in one batch, again and again: in the end nearly every pass of a round is a replay."""
    pair, requests = pairs("qwen2"), [request(number) for number in range(9)]
    expected = plain_ids(pair, requests)
    engine = Engine(pair)
    for _ in range(2):
        assert ids(engine, requests) == expected
    before, runs = captures.replays, engine.generate(requests)
    assert [run.token_ids for run in runs] == expected
    assert captures.replays - before > max(len(run.rounds) for run in runs)


def test_two_engines_at_once_share_no_workspace(captures: Captures, pairs: Pairs) -> None:
    """The second one does without, and gets it when the first is done or gone."""
    pair, asked = pairs("llama"), request(2, draft_length=3, max_new_tokens=30)
    assert pair.pass_times
    expected = plain_ids(pair, [asked])
    one = Engine(pair).stream(asked)
    assert isinstance(next(one), Started)
    before = captures.replays
    assert ids(Engine(pair), [asked]) == expected
    assert captures.replays == before
    assert [event.run.token_ids for event in one][-1:] == expected
    assert captures.replays > before
    half = Engine(pair).stream(asked)
    next(half)
    del half
    before = captures.replays
    assert ids(Engine(pair), [asked]) == expected
    assert captures.replays > before


def test_nan_stays_with_the_run_that_made_it(captures: Captures, tmp_path: Path) -> None:
    """Buffers outlive a run that failed; a shorter text in its slot sees more positions than it has written."""
    pair, asked = tiny_pair("llama", tmp_path), request(2, draft_length=3, max_new_tokens=30)
    expected = plain_ids(pair, [asked])
    for model in (pair.drafter, pair.verifier):
        model.get_input_embeddings().weight.data[200] = torch.nan
    engine = SharedEngine(pair)
    try:
        with pytest.raises(EngineError, match="not finite"):
            engine.generate(replace(asked, token_ids=[*range(40, 140), 200]))
        assert ids(engine, [asked]) == expected
    finally:
        engine.close()


def test_changed_models_and_other_vocabularies_share_no_capture(captures: Captures, tmp_path: Path) -> None:
    pair, asked = tiny_pair("llama", tmp_path), request(2, draft_length=3, max_new_tokens=20)
    for size in (pair.vocabulary_size, pair.vocabulary_size - 20):
        own = replace(pair, vocabulary_size=size)
        for _ in range(2):
            assert ids(Engine(own), [asked]) == plain_ids(own, [asked])
    pair.verifier.float().double()  # its weights lie elsewhere now
    assert ids(Engine(pair), [asked]) == plain_ids(pair, [asked])


# ---- memory ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_shared", [False, True])
def test_sequences_wait_for_memory_and_none_fails(
    captures: Captures, pairs: Pairs, monkeypatch: pytest.MonkeyPatch, is_shared: bool
) -> None:
    """Memory for a few slots: the other sequences come when there is room, and every text is as if there had always been."""
    pair, requests = pairs("llama"), [request(number, max_new_tokens=16) for number in range(12)]
    expected = plain_ids(pair, requests)
    most: list[int] = []
    engine: Engine | SharedEngine = SharedEngine(pair) if is_shared else Engine(pair)
    forward = ModelRunner.forward

    def spare(_: Any) -> int:
        return 2_000_000 - 600_000 * (most[-1] if most else 0)

    def count(self: ModelRunner, *given: Any, **more: Any) -> Tensor:
        most.append(len(self.owners))
        return forward(self, *given, **more)

    monkeypatch.setattr(batch, "spare_memory", spare)
    monkeypatch.setattr(ModelRunner, "forward", count)
    try:
        assert ids(engine, requests) == expected
    finally:
        if isinstance(engine, SharedEngine):
            engine.close()
    assert 1 < max(most) < 12


def test_buffers_for_many_short_texts_do_not_grow_by_all_of_them_for_a_long_one(
    captures: Captures, pairs: Pairs
) -> None:
    kept = workspace(pairs("llama").verifier)
    assert kept is not None
    slots = ModelRunner(pairs("llama").verifier, 300, kept)
    slots.admit([object() for _ in range(8)], 100)
    assert (kept.cache.slots, kept.cache.length) == (8, 512)
    slots.clear()
    assert slots.growth(1, 1500) < 0
    slots.admit([object()], 1500)
    assert (kept.cache.slots, kept.cache.length) == (1, 1536)
    slots.admit([object()], 100)  # the first owner keeps what was read
    assert (kept.cache.slots, kept.cache.length) == (2, 1536)


def test_where_memory_runs_out_captures_go_first_and_come_back_later(
    captures: Captures, pairs: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, requests = pairs("llama"), [request(2, seed=n, draft_length=3) for n in range(3)]
    expected, engine = plain_ids(pair, requests), Engine(pair)
    for _ in range(3):
        assert ids(engine, requests) == expected
    assert captured(pair) > 0
    run, full = ModelRunner._run, [True]

    def hungry(self: ModelRunner, *given: Any, **more: Any) -> Any:
        if full[0] and more["scores"] and captured(pair):
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return run(self, *given, **more)

    monkeypatch.setattr(ModelRunner, "_run", hungry)
    longer = [replace(each, draft_length=5) for each in requests]
    assert ids(engine, longer) == expected
    assert captured(pair) == 0
    full[0] = False
    for _ in range(3):
        assert ids(engine, requests) == expected
    assert captured(pair) > 0


# ---- what rounds do otherwise on a GPU -------------------------------------------------------------------


def test_a_round_fetches_all_numbers_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tensor, "is_cpu", False)
    found = record.download([{"a": torch.arange(3)}, {"b": torch.tensor([[0.5], [1.5]])}])
    assert found == [{"a": [0, 1, 2]}, {"b": [[0.5], [1.5]]}]
