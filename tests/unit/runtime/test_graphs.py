"""Bookkeeping of captured passes and of the buffers they read. That captured passes write the texts of plain ones, tests/gpu show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

import pytest
import torch
from torch import Tensor

from specviz.engine import batch
from specviz.engine.engine import Engine
from specviz.engine.pair import Pair
from specviz.errors import EngineError
from specviz.runtime import model_runner
from specviz.runtime.cuda import graphs as module
from specviz.runtime.cuda import workspace as workspaces
from specviz.runtime.cuda.graphs import PLAIN, STRIKES, Graphs
from specviz.runtime.model_runner import ModelRunner
from specviz.schema.settings import Request
from specviz.serving.shared_engine import SharedEngine
from tests.support.tiny import tiny_pair

# ---- captures


def double(values: Tensor) -> Tensor:
    return 2 * values


def often(graphs: Graphs, width: int, forward: Callable[..., Tensor] = double) -> None:
    """Passes of a shape until it is captured and replayed."""
    for _ in range(PLAIN + 2):
        assert graphs.run((width,), forward, [torch.ones(width)]).tolist() == [2.0] * width


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each replay; a graph is a call of its pass."""
    made: list[int] = []

    def record(_: Graphs, captured: Any, forward: Callable[..., Tensor], __: Any) -> None:
        def replay() -> None:
            made.append(1)
            captured.output.copy_(forward(*captured.inputs))

        forward(*captured.inputs)
        captured.graph.replay = replay

    monkeypatch.setattr(torch.cuda, "CUDAGraph", SimpleNamespace)
    monkeypatch.setattr(Graphs, "_record", record)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: SimpleNamespace(synchronize=lambda: None))
    return made


def test_a_shape_that_failed_runs_plainly_and_in_the_end_nothing_more_is_captured(
    replays: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    """Whether the capture failed or its replay differs from the plain pass. What is captured is still used."""
    graphs, calls = Graphs(), list[int]()

    def failing(values: Tensor) -> Tensor:
        calls.append(1)
        if len(calls) == PLAIN + 2:  # the capture's
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return 2 * values

    def counting(values: Tensor) -> Tensor:
        calls.append(1)
        return values + len(calls)

    often(graphs, 1)
    often(graphs, 2, failing)
    often(graphs, 3)
    assert (len(graphs), len(caplog.records)) == (2, 1)
    for width in range(4, 4 + STRIKES + 1):
        for _ in range(PLAIN + 1):
            graphs.run((width,), counting, [torch.zeros(1)])
    assert (len(graphs), len(caplog.records)) == (2, 1 + STRIKES)  # in a row
    before = len(replays)
    often(graphs, 1)
    assert (len(replays) - before, graphs.enabled) == (PLAIN + 2, True)


# ---- buffers and memory


@pytest.fixture
def buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models on the CPU have workspaces, as on a GPU, and nothing is captured."""
    monkeypatch.setenv("SPECVIZ_GRAPHS", "1")
    for each in (workspaces, model_runner):
        monkeypatch.setattr(each, "single_gpu", lambda _: torch.device("cpu"))
    monkeypatch.setattr(workspaces, "_workspaces", WeakKeyDictionary())
    monkeypatch.setattr(module, "STRIKES", 0)
    monkeypatch.setattr(batch, "spare_memory", lambda _: 80 << 30)


def request(number: int, **settings: Any) -> Request:
    """One of many that differ."""
    kind: dict[str, Any] = {
        "temperature": (1.0, 0.0, 0.7)[number % 3],
        "draft_length": ("auto", 3, 5)[number % 3],
    }
    return Request(token_ids=range(40 + number, 52 + number), seed=number, **kind, **settings)


def ids(engine: Engine | SharedEngine, requests: list[Request]) -> list[list[int]]:
    return [run.token_ids for run in engine.generate(requests)]


def plain_ids(pair: Pair, requests: list[Request]) -> list[list[int]]:
    """What is written without a workspace."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPECVIZ_GRAPHS", "0")
        return ids(Engine(pair), requests)


def test_nan_stays_with_the_run_that_made_it(buffers: None, tmp_path: Path) -> None:
    """Buffers outlive a run that failed; a shorter text in its slot sees more positions than it has written."""
    pair, asked = tiny_pair("llama", tmp_path), request(2, max_new_tokens=30)
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


def test_sequences_wait_for_memory_and_none_fails(
    buffers: None, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory for a few slots: the other sequences come when there is room, and every text is as if there had always been."""
    requests = [request(number, max_new_tokens=16) for number in range(12)]
    expected = plain_ids(pair, requests)
    most, forward = list[int](), ModelRunner.forward

    def spare(_: Any) -> int:
        return 2_000_000 - 600_000 * (most[-1] if most else 0)

    def count(self: ModelRunner, *given: Any, **more: Any) -> Tensor:
        most.append(len(self.owners))
        return forward(self, *given, **more)

    monkeypatch.setattr(batch, "spare_memory", spare)
    monkeypatch.setattr(ModelRunner, "forward", count)
    assert ids(Engine(pair), requests) == expected
    assert 1 < max(most) < 12


def test_a_workspace_belongs_to_one_runner_and_to_weights_that_stay(buffers: None, tmp_path: Path) -> None:
    """Its buffers for many short texts do not grow by all of them for a long one."""
    model = tiny_pair("llama", tmp_path).verifier
    kept = workspaces.workspace(model)
    assert kept is not None
    slots = ModelRunner(model, 300, kept)
    slots.admit([object() for _ in range(8)], 100)
    assert (kept.cache.slots, kept.cache.length) == (8, 512)
    ModelRunner(model, 300, kept).admit([object() for _ in range(9)], 100)  # the second one does without
    assert kept.cache.slots == 8
    slots.clear()
    assert slots.growth(1, 1500) < 0
    slots.admit([object()], 1500)
    assert (kept.cache.slots, kept.cache.length) == (1, 1536)
    slots.admit([object()], 100)  # the first owner keeps what was read
    assert (kept.cache.slots, kept.cache.length) == (2, 1536)
    assert workspaces.workspace(model) is kept
    model.float()
    assert workspaces.workspace(model) is not kept
