"""Captured forward passes and planned memory, on a pretended GPU: the texts stay those of the CPU, whatever happens."""

from __future__ import annotations

import copy
import gc
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from specviz.core.methods import PAPER
from specviz.engine import batch
from specviz.engine.engine import Engine
from specviz.engine.events import Started
from specviz.errors import EngineError
from specviz.models.pair import ModelPair
from specviz.runtime.cuda import graphs as module
from specviz.runtime.cuda.graphs import PLAIN, STRIKES, Graphs
from specviz.runtime.cuda.workspace import Workspace, workspace
from specviz.runtime.memory import spare_memory
from specviz.runtime.model_runner import ModelRunner, TorchModel
from specviz.schema.settings import Request
from specviz.serving.shared_engine import SharedEngine
from tests.support.pretend_gpu import PretendGpu, elsewhere, on_gpu
from tests.support.tiny import Pairs


def request(number: int, **options: Any) -> Request:
    """One of many that differ."""
    methods = list(PAPER)
    settings: dict[str, Any] = {
        "token_ids": list(range(40 + number, 52 + number)),
        "method": methods[number % len(methods)],
        "seed": number,
        "temperature": (1.0, 0.0, 0.7)[number % 3],
        "draft_length": ("auto", 3, 5)[number % 3],
        "max_new_tokens": 12 + 9 * number % 25,
    }
    return Request(**settings | options)


def ids(engine: Engine | SharedEngine, requests: list[Request]) -> list[list[int]]:
    with elsewhere() if engine.pair.device.type == "cpu" else nullcontext():
        return [run.token_ids for run in engine.generate(requests)]


def captures(pair: ModelPair) -> int:
    """How many passes of both models are captured."""
    kept = [workspace(model) for model in (pair.drafter, pair.verifier)]
    return sum(len(each.graphs) for each in kept if each)


@contextmanager
def plain_passes(pair: ModelPair) -> Iterator[list[str]]:
    """A list that grows by one name whenever the Python of a model runs."""
    names: list[str] = []
    hooks = [
        getattr(pair, name).register_forward_hook(lambda *_, name=name: names.append(name))
        for name in ("drafter", "verifier")
    ]
    yield names
    for hook in hooks:
        hook.remove()


# ---- one pass --------------------------------------------------------------------------------------------


def double(values: Tensor) -> Tensor:
    return 2 * values


def ask(graphs: Graphs, value: float, forward: Callable[..., Tensor] = double) -> float:
    return graphs.run((1,), forward, [torch.full((3,), value, device="cuda")])[0].item()


def test_a_shape_is_captured_when_it_has_come_back(gpu: PretendGpu) -> None:
    graphs = Graphs()
    for number in range(PLAIN + 4):
        assert ask(graphs, number) == 2 * number
        assert len(graphs) == (number >= PLAIN)
    assert gpu.replays == 4  # one to compare, three to serve


def test_a_result_is_not_overwritten_by_the_next(gpu: PretendGpu) -> None:
    graphs = Graphs()
    results = [graphs.run((1,), double, [torch.full((3,), float(n), device="cuda")]) for n in range(6)]
    assert [result[0].item() for result in results] == [0, 2, 4, 6, 8, 10]


def test_a_capture_that_says_something_else_is_not_used(
    gpu: PretendGpu, caplog: pytest.LogCaptureFixture
) -> None:
    """A pass that depends on what only Python knows cannot be captured."""
    graphs, calls = Graphs(), []

    def counting(values: Tensor) -> Tensor:
        calls.append(1)
        return values + len(calls)

    with caplog.at_level(logging.WARNING):
        found = [ask(graphs, 0.0, counting) for _ in range(6)]
    assert found == [1, 2, 3, 5, 6, 7]  # the fourth call was the capture's
    assert len(graphs) == 0
    assert [record.getMessage() for record in caplog.records] == [
        "a forward pass was not captured; it runs kernel by kernel"
    ]


def test_what_waits_for_the_device_is_not_captured_and_given_up_in_the_end(
    gpu: PretendGpu, caplog: pytest.LogCaptureFixture
) -> None:
    graphs = Graphs()
    stream = torch.cuda.current_stream()

    def waiting(values: Tensor) -> Tensor:
        return 2 * values if values[0].item() > 0 else values

    with caplog.at_level(logging.WARNING):
        assert [ask(graphs, float(n), waiting) for n in range(1, 20)] == list(range(2, 40, 2))
        for _ in range(PLAIN + 2):
            graphs.run((2,), waiting, [torch.ones(2, device="cuda")])
    assert (len(graphs), graphs.enabled) == (0, False)
    assert len(caplog.records) == STRIKES
    assert torch.cuda.current_stream() is stream


def test_what_fails_in_passing_costs_no_capture(gpu: PretendGpu, caplog: pytest.LogCaptureFixture) -> None:
    """One failure: what is captured is still replayed, others are captured, and the shape itself when it comes back."""
    graphs, failures = Graphs(), [RuntimeError("a cable was loose")]

    def loose(values: Tensor) -> Tensor:
        if gpu.recording and failures:
            raise failures.pop()
        return 3 * values

    for number in range(PLAIN + 1):
        ask(graphs, number)
    for shape in ((2,), (3,), (2,)):
        for _ in range(PLAIN + 1):
            graphs.run(shape, loose, [torch.ones(shape, device="cuda")])
    assert len(graphs) == 3
    assert len(caplog.records) == 1
    gpu.fail_captures = True
    for width in range(4, 5 + STRIKES):
        for _ in range(PLAIN + 1):
            graphs.run((width,), loose, [torch.ones(width, device="cuda")])
    before = gpu.replays
    assert ask(graphs, 4.0) == 8
    assert (gpu.replays - before, len(graphs), graphs.enabled) == (1, 3, True)


def test_a_shape_that_runs_out_of_memory_runs_plainly_and_others_are_captured(gpu: PretendGpu) -> None:
    graphs = Graphs()

    def hungry(values: Tensor) -> Tensor:
        if gpu.recording:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return 2 * values

    assert [ask(graphs, float(n), hungry) for n in range(5)] == [0, 2, 4, 6, 8]
    for _ in range(PLAIN + 1):
        graphs.run((2,), double, [torch.ones(2, device="cuda")])
    assert len(graphs) == 1


def test_what_was_freed_is_captured_again(gpu: PretendGpu) -> None:
    """torch refuses a capture into a pool whose graphs are all gone: a cleared one needs another pool."""
    graphs = Graphs()
    for _ in range(3):
        for number in range(PLAIN + 2):
            assert ask(graphs, number) == 2 * number
        assert len(graphs) == 1
        graphs.clear()
    assert graphs.enabled


def test_results_of_all_captures_lie_in_the_same_memory(gpu: PretendGpu) -> None:
    """Each capture of a large result would hold as much again, for as long as it lives."""
    graphs = Graphs()
    for length in range(33, 65):
        values = torch.ones(length, device="cuda")
        results = [graphs.run((length,), double, [values]) for _ in range(PLAIN + 2)]
        assert [result.tolist() for result in results] == [[2.0] * length] * (PLAIN + 2)
    kept = {each.output.untyped_storage().data_ptr() for each in graphs._captured.values() if each}
    assert (len(graphs), len(kept)) == (32, 1)


def test_captures_are_bounded(gpu: PretendGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 2)
    graphs = Graphs()
    for width in range(1, 5):
        for _ in range(PLAIN + 2):
            values = torch.ones(width, device="cuda")
            assert graphs.run((width,), double, [values]).tolist() == [2.0] * width
    assert (len(graphs), graphs.enabled) == (2, True)


def test_what_only_captures_may_use_is_not_spare(gpu: PretendGpu) -> None:
    kept = torch.ones(1000, device="cuda")
    del kept
    before = spare_memory(torch.device("cuda:0"))
    of_captures = {"device": 0, "total_size": 3000, "allocated_size": 1000, "segment_pool_id": (0, 7)}
    of_all = {"device": 0, "total_size": 500, "allocated_size": 0, "segment_pool_id": (0, 0)}
    elsewhere = of_captures | {"device": 1}
    gpu.segments += [of_captures, of_all, elsewhere]
    assert before - spare_memory(torch.device("cuda:0")) == 2000


def test_infinities_and_what_is_no_number_compare(gpu: PretendGpu) -> None:
    graphs = Graphs()
    values = torch.tensor([1.0, float("inf"), -float("inf"), float("nan")], device="cuda")
    for _ in range(PLAIN + 1):
        graphs.run((4,), double, [values])
    assert len(graphs) == 1


# ---- texts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["llama", "gemma2", "gemma3", "gpt2"])
def test_captured_passes_write_the_text_of_the_cpu(gpu: PretendGpu, pairs: Pairs, family: str) -> None:
    """Nine methods in one batch, again and again: in the end nearly every pass of a round is a replay."""
    there, requests = on_gpu(pairs(family)), [request(number) for number in range(9)]
    expected = ids(Engine(pairs(family)), requests)
    engine = Engine(there)
    assert ids(engine, requests) == expected
    assert ids(engine, requests) == expected
    assert captures(there) > 2
    with plain_passes(there) as passes:
        runs = engine.generate(requests)
    assert [run.token_ids for run in runs] == expected
    assert len(passes) < sum(len(run.rounds) for run in runs) / 2


def test_every_method_alone_is_captured(gpu: PretendGpu, pairs: Pairs) -> None:
    there, requests = on_gpu(pairs("qwen2")), [request(number, max_new_tokens=12) for number in range(9)]
    for asked in requests:
        assert ids(Engine(there), [asked]) == ids(Engine(pairs("qwen2")), [asked])
    assert captures(there) > 2


def test_captures_outlive_the_batch_that_made_them(gpu: PretendGpu, pairs: Pairs) -> None:
    """A second text of the same kind is replayed from its first round on: no Python of a model, no new capture."""
    there, [asked] = on_gpu(pairs("llama")), [request(2, draft_length=3, max_new_tokens=30)]
    expected = ids(Engine(pairs("llama")), [asked])
    for _ in range(3):
        assert ids(Engine(there), [asked]) == expected
    before = captures(there)
    with plain_passes(there) as passes:
        assert ids(Engine(there), [asked]) == expected
    assert captures(there) == before
    assert passes == []  # prompts are read by the base models


def test_larger_buffers_make_captures_anew(gpu: PretendGpu, pairs: Pairs) -> None:
    there, plain = on_gpu(pairs("llama")), Engine(pairs("llama"))
    engine = Engine(there)
    for count, tokens in ((1, 20), (1, 300), (3, 20)):
        requests = [request(2, seed=n, draft_length=3, max_new_tokens=tokens) for n in range(count)]
        assert ids(engine, requests) == ids(plain, requests)
        assert captures(there) > 0


def test_two_engines_at_once_share_no_workspace(gpu: PretendGpu, pairs: Pairs) -> None:
    """One has the workspace; the other makes do, and gets it when the first is done."""
    there, asked = on_gpu(pairs("llama")), request(2, draft_length=3, max_new_tokens=30)
    expected = ids(Engine(pairs("llama")), [asked])
    one = Engine(there).stream(asked)
    assert isinstance(next(one), Started)
    assert ids(Engine(there), [asked]) == expected
    assert captures(there) == 0
    assert [event.run.token_ids for event in one][-1:] == expected
    assert captures(there) > 0
    half = Engine(there).stream(asked)
    next(half)
    del half  # whoever had it is gone: it is free again
    before = captures(there)
    assert ids(Engine(there), [request(2, draft_length=5, max_new_tokens=30)]) == expected
    assert captures(there) > before


def test_captures_can_be_declined(gpu: PretendGpu, pairs: Pairs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECVIZ_GRAPHS", "0")
    there, requests = on_gpu(pairs("llama")), [request(number) for number in range(4)]
    assert ids(Engine(there), requests) == ids(Engine(pairs("llama")), requests)
    assert (captures(there), gpu.replays) == (0, 0)


def test_where_captures_fail_texts_do_not(
    gpu: PretendGpu, pairs: Pairs, caplog: pytest.LogCaptureFixture
) -> None:
    gpu.fail_captures = True
    there, requests = on_gpu(pairs("llama")), [request(number) for number in range(4)]
    with caplog.at_level(logging.WARNING):
        assert ids(Engine(there), requests) == ids(Engine(pairs("llama")), requests)
    assert captures(there) == 0
    assert (
        1 <= len(caplog.records) <= 4 * STRIKES
    )  # of each model, while its passes are timed and while it decodes


def test_numbers_that_are_not_finite_stay_with_the_run_that_made_them(gpu: PretendGpu, pairs: Pairs) -> None:
    """Buffers outlive a run that failed; a shorter text in its slot sees more positions than it has written."""
    there, asked = on_gpu(pairs("llama")), request(2, draft_length=3, max_new_tokens=30)
    expected = ids(Engine(pairs("llama")), [asked])
    for model in (there.drafter, there.verifier):
        weight = model.get_input_embeddings().weight
        weight.data[200] = torch.nan
    bad = replace(asked, token_ids=[*range(40, 140), 200])
    with pytest.raises(EngineError, match="not finite"):
        Engine(there).generate(bad)
    engine = SharedEngine(there)
    try:
        with pytest.raises(EngineError, match="not finite"):
            engine.generate(bad)
        assert ids(engine, [asked]) == expected
    finally:
        engine.close()
    assert ids(Engine(there), [asked]) == expected


def test_a_warm_engine_captures_nothing_more_for_a_short_text(gpu: PretendGpu, pairs: Pairs) -> None:
    there = on_gpu(pairs("llama"))
    engine, reported = SharedEngine(there), []
    try:
        engine.warm_up(lambda fraction, text: reported.append(text))
        before = captures(there)
        with plain_passes(there) as passes:
            asked = request(2, draft_length=3, max_new_tokens=100)
            assert ids(engine, [asked]) == ids(Engine(pairs("llama")), [asked])
    finally:
        engine.close()
    assert len(reported) == before == captures(there) == 12
    assert passes == []


def test_concurrent_sequences_cost_no_captures_where_buffers_were_reserved(
    gpu: PretendGpu, pairs: Pairs
) -> None:
    """Captures of one slot over buffers of eight stay valid when others join."""
    there = on_gpu(pairs("llama"))
    engine = SharedEngine(there)
    requests = [request(n, draft_length=3, max_new_tokens=60) for n in (2, 3, 4, 2)]
    try:
        engine.warm_up(lambda fraction, text: None)
        before = captures(there)
        assert ids(engine, requests) == ids(Engine(pairs("llama")), requests)
    finally:
        engine.close()
    assert captures(there) >= before


def test_pairs_of_one_model_with_other_vocabularies_share_no_capture(gpu: PretendGpu, pairs: Pairs) -> None:
    there, here = on_gpu(pairs("llama")), pairs("llama")
    asked = request(2, draft_length=3, max_new_tokens=40)
    for size in (there.vocabulary_size, there.vocabulary_size - 20, there.vocabulary_size):
        expected = ids(Engine(replace(here, vocabulary_size=size)), [asked])
        for _ in range(2):
            assert ids(Engine(replace(there, vocabulary_size=size)), [asked]) == expected


def test_a_round_that_fails_leaves_the_workspace_free(
    gpu: PretendGpu, pairs: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows go on one by one, and whoever comes next is captured again, though the failure is still remembered."""
    there, asked = on_gpu(pairs("llama")), request(2, draft_length=3, max_new_tokens=40)
    expected = ids(Engine(pairs("llama")), [asked])
    engine = SharedEngine(there)
    run_round, failures = batch.run_round, [RuntimeError("a cable was loose")]

    def fail_once(*arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return run_round(*arguments)

    try:
        assert ids(engine, [asked]) == expected
        monkeypatch.setattr(batch, "run_round", fail_once)
        before = gpu.replays
        assert ids(engine, [asked]) == expected
        assert gpu.replays > before
    finally:
        engine.close()


def test_a_warm_up_does_nothing_on_a_cpu(pairs: Pairs) -> None:
    reported: list[str] = []
    engine = SharedEngine(pairs("llama"))
    try:
        engine.warm_up(lambda fraction, text: reported.append(text))
    finally:
        engine.close()
    assert reported == []


# ---- memory ----------------------------------------------------------------------------------------------


def test_many_texts_leave_memory_where_it_was(gpu: PretendGpu, pairs: Pairs) -> None:
    """Once every shape has come up, nothing is added, however many texts of whatever length come and go."""
    engine = Engine(on_gpu(pairs("llama")), max_sequences=4)

    def serve() -> int:
        for first in range(0, 18, 9):
            numbers = range(first, first + 9)
            engine.generate([request(n, max_new_tokens=3 + 2 * (n % 9), draft_length=3) for n in numbers])
        gc.collect()
        return gpu.allocated

    _, _, before, after = serve(), serve(), serve(), serve()
    assert after == pytest.approx(before, rel=1e-3)


@pytest.mark.parametrize("shared", [False, True])
def test_sequences_wait_for_memory_and_none_fails(
    gpu: PretendGpu, pairs: Pairs, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    """Memory for a few rows: the others come when there is room, and every text is as if there had always been."""
    requests = [request(number, max_new_tokens=16) for number in range(12)]
    expected = ids(Engine(pairs("llama")), requests)
    monkeypatch.setattr(
        batch, "_ADMISSION_SHARE", 0.3
    )  # passes of tiny models take more, beside their buffers, than those of large ones
    there = on_gpu(pairs("llama"))
    gpu.memory = gpu.allocated + 3_000_000
    engine: Engine | SharedEngine = SharedEngine(there) if shared else Engine(there)
    most = 0
    seats = ModelRunner.forward

    def count(self: ModelRunner, *args: Any, **more: Any) -> Tensor:
        nonlocal most
        most = max(most, len(self.owners))
        return seats(self, *args, **more)

    monkeypatch.setattr(ModelRunner, "forward", count)
    try:
        assert ids(engine, requests) == expected
    finally:
        if isinstance(engine, SharedEngine):
            engine.close()
    assert 1 < most < 12


def test_buffers_for_many_short_texts_do_not_grow_by_all_of_them_for_a_long_one(
    gpu: PretendGpu, pairs: Pairs
) -> None:
    model = on_gpu(pairs("llama")).verifier
    kept = workspace(model)
    slots = ModelRunner(model, 300, kept)
    assert kept is not None
    slots.admit([object() for _ in range(8)], 100)
    assert (kept.cache.slots, kept.cache.length) == (8, 512)
    slots.clear()
    assert slots.growth(1, 1500) < 0
    slots.admit([long := object()], 1500)
    assert (kept.cache.slots, kept.cache.length) == (1, 1536)
    slots.admit([object()], 100)  # whoever sits there keeps what was read
    assert (kept.cache.slots, kept.cache.length) == (2, 1536)
    slots.release(long)


def test_where_memory_runs_out_captures_go_first_and_come_back_later(gpu: PretendGpu, pairs: Pairs) -> None:
    there, requests = on_gpu(pairs("llama")), [request(2, seed=n, draft_length=3) for n in range(3)]
    expected = ids(Engine(pairs("llama")), requests)
    engine = Engine(there)
    for _ in range(3):
        assert ids(engine, requests) == expected
    assert captures(there) > 0
    gpu.memory = gpu.allocated + 20_000  # too little for a plain pass beside them
    longer = [request(2, seed=n, draft_length=5) for n in range(3)]
    assert ids(engine, longer) == ids(Engine(pairs("llama")), longer)
    assert captures(there) == 0
    gpu.memory *= 10
    for _ in range(3):
        assert ids(engine, requests) == expected
    assert captures(there) > 0


def test_a_model_on_a_cpu_has_no_workspace(pairs: Pairs) -> None:
    assert workspace(pairs("llama").verifier) is None


def test_a_model_that_has_changed_is_captured_anew(gpu: PretendGpu, pairs: Pairs) -> None:
    there, asked = on_gpu(pairs("llama")), request(2, draft_length=3, max_new_tokens=40)
    expected = ids(Engine(pairs("llama")), [asked])
    for _ in range(2):
        assert ids(Engine(there), [asked]) == expected
    assert captures(there) > 0
    there.verifier.float().double()  # its weights lie elsewhere now
    near = ids(Engine(there), [asked])
    assert captures(there) > 0
    assert near == ids(
        Engine(
            replace(
                pairs("llama"),
                verifier_model=TorchModel(copy.deepcopy(pairs("llama").verifier).float().double()),
            )
        ),
        [asked],
    )


def test_a_model_that_goes_takes_its_buffers_and_captures_along(gpu: PretendGpu, pairs: Pairs) -> None:
    before = gpu.allocated
    there = on_gpu(pairs("llama"))
    for _ in range(2):
        Engine(there).generate(request(2, draft_length=3, max_new_tokens=40))
    assert captures(there) > 0
    del there
    gc.collect()
    assert gpu.allocated == before


def test_a_workspace_has_one_holder(gpu: PretendGpu) -> None:
    class Holder:
        pass

    lent, one, other = Workspace(), Holder(), Holder()
    assert lent.acquire(one)
    assert lent.acquire(one)
    assert not lent.acquire(other)
    lent.release()
    assert lent.acquire(other)
    del other
    assert lent.acquire(one)
