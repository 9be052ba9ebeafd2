"""The engine on a GPU, as far as one can be pretended: the pretence itself, the laws of the texts, and who waits for whom."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator
from collections.abc import Sequence as SequenceOf
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from specviz.core import backend
from specviz.core.methods import PAPER
from specviz.engine.batch import Batch
from specviz.engine.engine import Engine
from specviz.engine.sequence import Sequence
from specviz.errors import EngineError, PairError
from specviz.models.loading import load_pair
from specviz.models.pair import ModelPair
from specviz.models.small_vocabulary import SmallVocabulary
from specviz.models.tokenizer import TokenLabels
from specviz.runtime.attention import group
from specviz.runtime.model_runner import TorchModel
from specviz.runtime.prefix_cache import SHORTEST, PrefixCache
from specviz.schema.settings import AUTO, Request
from specviz.schema.trace import Run
from specviz.serving.shared_engine import SharedEngine
from tests.support.pretend_gpu import PretendGpu, elsewhere, on_gpu, pretend_gpu
from tests.support.tiny import Pairs, tiny_model

PROMPT = "The quick brown fox jumps over"
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "top-p": {"top_p": 0.9},
    "inspect": {"inspect": 3},
    "forbidden": {"forbidden_tokens": [70, 71, 72, 80, 85, 90]},
    "logits": {"return_logits": True},
    "penalty": {"repetition_penalty": 1.3},
}


# ---- the pretence ----------------------------------------------------------------------------------------


def cuda(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, device="cuda")


def test_it_is_a_gpu_to_whoever_asks(gpu: PretendGpu) -> None:
    tensor = torch.arange(3, device="cuda")
    assert (tensor.device, tensor.is_cuda, tensor.is_cpu) == (torch.device("cuda:0"), True, False)
    assert torch.cuda.is_available()
    assert tensor.tolist() == [0, 1, 2]
    with pytest.raises(TypeError, match="can't convert cuda"):
        tensor.numpy()


@pytest.mark.parametrize(
    "mix",
    [
        lambda there, here: there + here,
        lambda there, here: torch.cat([there, here]),
        lambda there, here: here.add_(there),
        lambda there, here: torch.where(there > 1, here, there),
        lambda there, here: there[0] * here,
        lambda there, here: here.sum().add_(there.sum()),
        lambda there, here: there.gather(0, here.long()),
    ],
)
def test_tensors_of_two_devices_do_not_mix(gpu: PretendGpu, mix: Callable[..., Tensor]) -> None:
    with pytest.raises(RuntimeError, match="same device"):
        mix(cuda(1, 2), torch.ones(2, dtype=torch.float64))


def test_a_number_without_dimensions_may_lie_on_the_cpu(gpu: PretendGpu) -> None:
    there = cuda(1, 2)
    gpu.clear()
    results = there + torch.tensor(1.0), torch.tensor(3.0) - there, torch.where(there > 1, there, 7.0)
    assert gpu.notes == []
    assert [result.tolist() for result in results] == [[2, 3], [2, 1], [7, 2]]


@pytest.mark.parametrize(
    ("reads", "act"),
    [
        (1, lambda it: it[0].item()),
        (1, lambda it: it.tolist()),
        (1, lambda it: it.cpu()),
        (1, lambda it: it.to("cpu", copy=True)),
        (1, lambda it: bool((it > 0).all())),
        (1, lambda it: it.nonzero()),
        (1, lambda it: it[it > 1]),
        (1, lambda it: torch.zeros(3, dtype=torch.float64).copy_(it)),
        (1, lambda it: torch.cuda.synchronize()),
        (0, lambda it: it.double().sum().clamp_min(1) / it.sort().values[:2]),
        (0, lambda it: it.masked_fill(it > 1, 0)),
        (0, lambda it: it.new_zeros(3).scatter_(0, it.long() - 1, it)),
    ],
)
def test_reads_are_counted(gpu: PretendGpu, reads: int, act: Callable[[Tensor], object]) -> None:
    tensor = cuda(1, 2, 3)
    gpu.clear()
    act(tensor)
    assert (gpu.reads, gpu.uploads) == (reads, 0), str(gpu)


@pytest.mark.parametrize(
    ("uploads", "act"),
    [
        (1, lambda it: torch.tensor([1, 2], device=it.device)),
        (1, lambda it: torch.as_tensor(0.5, device=it.device)),
        (1, lambda it: torch.ones(2).to("cuda")),
        (1, lambda it: torch.ones(2).to(it)),
        (1, lambda it: it.new_tensor([1, 2])),
        (1, lambda it: it[[0, 2]]),
        (1, lambda it: it[torch.tensor([0, 2])]),
        (1, lambda it: it.__setitem__([0, 2], 5.0)),
        (1, lambda it: it.copy_(torch.zeros(3))),
        (0, lambda it: torch.full((3,), 2.0, device="cuda")),
        (0, lambda it: torch.arange(3, device="cuda").to("cuda")),
        (0, lambda it: it.__setitem__(slice(1, None), 5.0)),
    ],
)
def test_uploads_are_counted(gpu: PretendGpu, uploads: int, act: Callable[[Tensor], object]) -> None:
    tensor = cuda(1, 2, 3)
    gpu.clear()
    act(tensor)
    assert (gpu.reads, gpu.uploads) == (0, uploads), str(gpu)
    assert all("test_pretend_gpu.py:" in note.where for note in gpu.notes)


@pytest.mark.parametrize(
    "index",
    [
        0,
        (-1, 2),
        slice(1, 3),
        (slice(None), [0, 2]),
        (..., 1),
        (1, ..., None, slice(0, 4, 2)),
        ([2, 0], slice(None), [1, 1]),
        (None, 1, slice(2)),
        (slice(None), [1], ..., 0),
    ],
)
def test_indices_mean_what_they_mean_on_the_cpu(gpu: PretendGpu, index: Any) -> None:
    here = torch.arange(60.0).view(3, 4, 5)
    there = here.to("cuda")
    assert there[index].tolist() == here[index].tolist()
    there[index] = -1.0
    here[index] = -1.0
    assert torch.equal(there.cpu(), here)
    there[index] = torch.full(here[index].shape, -2.0, device="cuda")
    assert torch.equal(there.cpu() == -2, here == -1)


def test_what_is_written_through_a_view_is_written(gpu: PretendGpu) -> None:
    tensor = torch.zeros(2, 3, device="cuda")
    view = tensor.t()[1:].view(2, 2)
    assert view.add_(1) is view
    tensor[0, 0:2] += 4
    assert tensor.tolist() == [[4, 5, 1], [0, 1, 1]]
    found = torch.ge(tensor, tensor.flip(0), out=tensor.new_empty(0))
    assert (found.shape, found.dtype) == (tensor.shape, tensor.dtype)
    assert found.tolist() == [[1, 1, 1], [0, 0, 1]]


def test_fresh_memory_is_garbage(gpu: PretendGpu) -> None:
    assert torch.empty(2, device="cuda").isnan().all()
    assert cuda(1).new_empty(2).isnan().all()
    assert torch.empty(2, dtype=torch.long, device="cuda").min() > 1 << 40


def test_memory_is_counted_and_runs_out(gpu: PretendGpu) -> None:
    tensor = torch.zeros(1000, device="cuda")
    view = tensor[10:]
    assert torch.cuda.memory_allocated() == 4000
    del tensor
    assert torch.cuda.memory_allocated() == 4000
    del view
    assert (torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()) == (0, 4000)
    gpu.memory = 5000
    held = torch.zeros(1000, device="cuda")
    with pytest.raises(torch.cuda.OutOfMemoryError):
        held + 1
    torch.cuda.empty_cache()
    assert torch.cuda.mem_get_info() == (1000, 5000)


def test_events_are_over_once_the_host_has_waited(gpu: PretendGpu) -> None:
    first, second = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    cuda(1).sum().item()
    second.record()
    assert first.query()
    with pytest.raises(RuntimeError, match="not ready"):
        first.elapsed_time(second)
    second.synchronize()
    assert first.elapsed_time(second) > 0


def capture(body: Callable[[], Any], graph: Any = None) -> tuple[Any, Any]:
    graph = graph or torch.cuda.CUDAGraph()
    with torch.inference_mode(), torch.cuda.graph(graph, pool=torch.cuda.graph_pool_handle()):
        result = body()
    return graph, result


def test_a_graph_does_again_what_was_captured_with_what_lies_there_now(gpu: PretendGpu) -> None:
    given, total = cuda(1, 2, 3), cuda(0)
    calls = []

    def body() -> Tensor:
        calls.append(1)
        total.add_(given.sum())
        whole = given.new_zeros(2, 3)
        whole[1] = given
        return torch.cat([whole.cumsum(-1), torch.full((1, 3), 0.5, dtype=given.dtype, device="cuda")])

    graph, result = capture(body)
    assert result.shape == (3, 3)
    assert result.isnan().all()  # a capture does nothing yet
    assert total.tolist() == [0]
    graph.replay()
    assert result.tolist() == [[0, 0, 0], [1, 3, 6], [0.5] * 3]
    given.copy_(cuda(4, 5, 6))
    graph.replay()
    assert result.tolist() == [[0, 0, 0], [4, 9, 15], [0.5] * 3]
    assert (total.tolist(), calls, gpu.replays) == ([21], [1], 2)


@pytest.mark.parametrize(
    "act",
    [
        lambda it: it.tolist(),
        lambda it: it[it > 1],
        lambda it: torch.cuda.synchronize(),
        lambda it: it + torch.tensor([1, 2], device="cuda"),
        lambda it: it[[0, 1]],
        lambda it: bool(it[0]),
    ],
)
def test_nothing_in_a_capture_may_wait(gpu: PretendGpu, act: Callable[[Tensor], object]) -> None:
    tensor = cuda(1, 2)
    with pytest.raises(RuntimeError, match="not permitted when stream is capturing"):
        capture(lambda: act(tensor))
    torch.cuda.set_stream(torch.cuda.default_stream())
    assert not torch.cuda.is_current_stream_capturing()
    assert tensor.tolist() == [1, 2]


def test_a_graph_is_used_as_cuda_lets_it(gpu: PretendGpu) -> None:
    memory = [cuda(1, 2)]
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        torch.cuda.CUDAGraph().replay()
    gpu.fail_captures = True
    with pytest.raises(RuntimeError, match="failed due to a previous error"):
        capture(lambda: memory[0] + 1)
    torch.cuda.set_stream(torch.cuda.default_stream())
    gpu.fail_captures = False
    pinned = torch.ones(2, dtype=torch.float64).pin_memory()
    graph, result = capture(lambda: memory[0] + memory[0].clone().copy_(pinned, non_blocking=True))
    pinned.fill_(5)
    graph.replay()
    assert result.tolist() == [6, 7]
    memory.clear()
    with pytest.raises(RuntimeError, match="has been freed"):
        graph.replay()


def test_afterwards_there_is_no_gpu_again(pairs: Pairs) -> None:
    before = torch.tensor, torch.Tensor.to, torch.cuda.CUDAGraph, torch.cuda.synchronize
    with pretend_gpu():
        on_gpu(pairs("llama"))
    assert (torch.tensor, torch.Tensor.to, torch.cuda.CUDAGraph, torch.cuda.synchronize) == before
    assert not torch.cuda.is_available()
    for make in (torch.zeros, torch.empty):
        with pytest.raises((AssertionError, NotImplementedError, RuntimeError)):
            make(1, device="cuda")
    with pytest.raises(PairError, match="not available here"):
        load_pair("embedded", device="cuda")


# ---- the engine ------------------------------------------------------------------------------------------


def nine(temperature: float, **settings: Any) -> list[Request]:
    """A request of every method, with drafts of different lengths."""
    lengths = (3, AUTO, 1, 5)
    return [
        Request(
            prompt=PROMPT[: 12 + 2 * number],
            method=method,
            seed=number,
            temperature=temperature,
            draft_length=lengths[number % len(lengths)],
            max_new_tokens=5 + number,
            **settings,
        )
        for number, method in enumerate(PAPER)
    ]


def mixed() -> list[Request]:
    """All methods and all settings in one batch."""
    kinds = list(SETTINGS.values())
    return [
        dataclasses.replace(request, **kinds[(number + shift) % len(kinds)])
        for shift, temperature in enumerate((0.0, 0.8))
        for number, request in enumerate(nine(temperature))
    ]


def check_alike(ours: Any, theirs: Any, tolerance: float = 1e-9) -> None:
    """Equal records, but for seconds; numbers to the last bits but a few."""
    if isinstance(theirs, Tensor):
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)
    elif dataclasses.is_dataclass(theirs):
        for field in dataclasses.fields(theirs):
            if not field.name.endswith("seconds") and field.name != "device":
                check_alike(getattr(ours, field.name), getattr(theirs, field.name), tolerance)
    elif isinstance(theirs, list | tuple):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            check_alike(one, other, tolerance)
    elif isinstance(theirs, float):
        assert ours == pytest.approx(theirs, rel=tolerance, abs=tolerance)
    else:
        assert ours == theirs


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengths left to the engine depend on the clock; not here, so that rounds are comparable one by one."""

    monkeypatch.setattr("specviz.engine.batch.best_draft_length", lambda times, sequences: 6)
    monkeypatch.setattr("specviz.engine.plan.THRESHOLD", 0.0)


def check_on_gpu(pair: ModelPair, requests: SequenceOf[Request], there: ModelPair | None = None) -> list[Run]:
    there = there or on_gpu(pair)
    runs = Engine(there).generate(requests)
    with elsewhere():
        expected = Engine(pair).generate(requests)
    check_alike(runs, expected)
    assert {run.device for run in runs} == {"cuda:0"}
    return runs


@pytest.mark.usefixtures("steady")
@pytest.mark.parametrize("temperature", [0, 0.8])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_texts_and_numbers_are_those_of_the_cpu(
    gpu: PretendGpu, pairs: Pairs, settings: dict[str, Any], temperature: float
) -> None:
    check_on_gpu(pairs("llama"), nine(temperature, **settings))


@pytest.mark.usefixtures("steady")
@pytest.mark.parametrize(
    ("family", "graphs"),
    [("llama", "1"), ("llama", "0"), ("qwen2", "1"), ("gemma2", "1"), ("gpt2", "1"), ("gpt2", "0")],
)
def test_every_family_is_as_on_the_cpu(
    gpu: PretendGpu, pairs: Pairs, family: str, graphs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All settings in one batch, with the project's own attention where a family takes it, captured and not."""
    monkeypatch.setenv("SPECVIZ_GRAPHS", graphs)
    there = on_gpu(pairs(family))
    for model in (there.drafter, there.verifier):
        group(model)
    check_on_gpu(pairs(family), mixed(), there)


@pytest.mark.usefixtures("steady")
def test_a_small_vocabulary_is_as_on_the_cpu(gpu: PretendGpu, pairs: Pairs, tmp_path: Path) -> None:
    pair = pairs("llama")
    size = pair.verifier.config.vocab_size
    counts = torch.arange(size, 0, -1)
    known = SmallVocabulary.of(counts, 200, [0], pair.verifier.get_input_embeddings().weight)
    drafter = tiny_model("llama", len(known.kept), 1, tmp_path).requires_grad_(False)
    known.widen(drafter)
    runs = check_on_gpu(dataclasses.replace(pair, drafter_model=TorchModel(drafter)), mixed())
    assert any(token.accepted for run in runs for token in run.tokens)


@pytest.mark.usefixtures("steady")
def test_a_drafter_that_lacks_tokens_is_as_on_the_cpu(gpu: PretendGpu, pairs: Pairs, tmp_path: Path) -> None:
    pair = pairs("llama")
    drafter = tiny_model("llama", pair.vocabulary_size - 40, 1, tmp_path).requires_grad_(False)
    runs = check_on_gpu(dataclasses.replace(pair, drafter_model=TorchModel(drafter)), mixed())
    assert any(token.accepted for run in runs for token in run.tokens)


@pytest.mark.usefixtures("steady")
def test_draws_in_wider_steps_are_those_of_the_cpu(
    gpu: PretendGpu, pairs: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The vocabulary here is of a few blocks."""
    monkeypatch.setattr(backend, "_BLOCK", 128)
    check_on_gpu(pairs("llama"), mixed())


def test_memory_that_runs_out_is_a_sentence(gpu: PretendGpu, pairs: Pairs) -> None:
    there = on_gpu(pairs("llama"))
    gpu.memory = gpu.allocated + 100_000
    with pytest.raises(EngineError, match="Memory ran out"):
        Engine(there).generate(nine(0.8))


# ---- who waits for whom ----------------------------------------------------------------------------------


def seated(pair: ModelPair, requests: SequenceOf[Request], known: Any = None) -> Batch:
    """A batch whose prompts are read."""
    labels = TokenLabels(pair.tokenizer)
    batch = Batch(pair, known)
    for _ in batch.read([Sequence(number, request, pair, labels) for number, request in enumerate(requests)]):
        pass
    return batch


def rounds(batch: Batch, gpu: PretendGpu) -> Iterator[None]:
    """One round after another, each with its own notes; what a capture takes is of no interest here."""
    while batch.sequences:
        gpu.clear()
        for outcome in batch.step():
            if outcome.error is not None:
                raise outcome.error
        gpu.notes = [note for note in gpu.notes if "graphs.py" not in note.where]
        yield


@pytest.mark.parametrize("draft_length", [1, 4, 16, AUTO])
def test_a_round_waits_once_for_the_device_and_sends_it_one_parcel(
    gpu: PretendGpu, pairs: Pairs, draft_length: int | str
) -> None:
    """However many methods, rows and proposals there are, whatever is asked of them; logits are read on top of that."""
    there = on_gpu(pairs("llama"))
    requests = [
        dataclasses.replace(request, return_logits=False, draft_length=draft_length)
        for request in mixed()[:: 1 if draft_length == 4 else 3]
    ]
    batch = seated(there, requests)
    for number, _ in enumerate(rounds(batch, gpu)):
        assert gpu.reads == 1, str(gpu)
        # The first round that is inspected sends the methods' ranges too.
        assert gpu.uploads <= (1 if number else 2), str(gpu)


@pytest.mark.parametrize("method", PAPER)
def test_a_text_alone_waits_once_a_round(gpu: PretendGpu, pairs: Pairs, method: str) -> None:
    there = on_gpu(pairs("gpt2"))
    request = Request(prompt=PROMPT, method=method, seed=1, max_new_tokens=12, top_p=0.9, inspect=2)
    for number, _ in enumerate(rounds(seated(there, [request]), gpu)):
        assert (gpu.reads, gpu.uploads) in ((1, 1), (1, 1 if number else 2)), str(gpu)


def test_a_prompt_is_sent_and_waited_for_once_a_pass(gpu: PretendGpu, pairs: Pairs) -> None:
    """Two models of one pass each, and the end."""
    there = on_gpu(pairs("llama"))
    assert there.pass_times  # measured by passes of its own
    gpu.clear()
    seated(there, [Request(prompt=PROMPT)])
    assert (gpu.reads, gpu.uploads) == (3, 2), str(gpu)


# ---- batches that come and go ----------------------------------------------------------------------------


def test_rows_may_part_and_meet_again(gpu: PretendGpu, pairs: Pairs) -> None:
    """Law 3: `Batch.split` and `Batch.take` change no text."""
    requests = mixed()
    expected = Engine(pairs("qwen2")).generate(requests)
    batch = seated(on_gpu(pairs("qwen2")), requests)
    rows = list(batch.sequences)
    batch.step()
    parted = batch.split()
    assert not batch.sequences
    for alone in parted:
        alone.step()
        if alone.sequences:
            batch.take(alone)
    for _ in rounds(batch, gpu):
        pass
    check_alike([row.run.token_ids for row in rows], [run.token_ids for run in expected])


def test_what_was_read_lately_is_not_read_again(gpu: PretendGpu, pairs: Pairs) -> None:
    """Law 3: the prefix store holds what the device has read, and no text changes."""
    common = list(range(40, 42 + 2 * SHORTEST))
    requests = [
        Request(token_ids=[*common, 5 + number], method="speed", seed=number, max_new_tokens=12)
        for number in range(3)
    ]
    expected = [Engine(pairs("llama")).generate(request)[0].token_ids for request in requests]
    there, known = on_gpu(pairs("llama")), (PrefixCache(), PrefixCache())
    for request, ids in zip(requests, expected, strict=True):
        batch = seated(there, [request], known)
        row = batch.sequences[0]
        for _ in rounds(batch, gpu):
            pass
        assert row.run.token_ids == ids
    prefix, length = known[1].find(common)
    assert prefix is not None
    assert length == len(common)
    assert all(each.is_cuda for states in prefix.saved for each in states)


def test_many_visitors_share_the_device(gpu: PretendGpu, pairs: Pairs) -> None:
    """Law 3: the shared engine's thread has the same GPU; each text is that of the same request alone on the CPU."""
    requests = [dataclasses.replace(request, draft_length=AUTO) for request in nine(0.8)]
    alone = [Engine(pairs("llama")).generate(request)[0] for request in requests]
    engine = SharedEngine(on_gpu(pairs("llama")), max_sequences=4)
    found: dict[int, list[int]] = {}

    def visit(number: int) -> None:
        found[number] = engine.generate(requests[number])[0].token_ids

    try:
        visitors = [threading.Thread(target=visit, args=(number,)) for number in range(len(requests))]
        for visitor in visitors:
            visitor.start()
        for visitor in visitors:
            visitor.join()
    finally:
        engine.close()
    assert found == {number: run.token_ids for number, run in enumerate(alone)}
