"""All that runs models beside the engine, on a pretended GPU: figures and texts are those of the CPU, memory comes back."""

from __future__ import annotations

import copy
import dataclasses
import gc
import json
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lm_eval.api.instance import Instance
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import StoppingCriteria, StopStringCriteria

import specviz
from specviz.analysis.quality import log_probabilities, read_logits
from specviz.analysis.sweep.grid import SweepGrid as SweepPlan
from specviz.analysis.sweep.items import Item, Items
from specviz.analysis.sweep.sweep import Sweep as SweepJob
from specviz.engine.engine import Engine
from specviz.engine.events import Finished
from specviz.errors import EngineError
from specviz.integrations.lm_eval import HarnessModel
from specviz.models.pair import ModelPair, pair_from_models
from specviz.models.registry import PAIRS, AssetSource, HubSource, PairSpec
from specviz.schema.settings import Request
from specviz.serving import zerogpu_service
from specviz.serving.comparison import compare
from specviz.serving.limits import Limits
from specviz.serving.service import Service
from specviz.serving.shared_engine import SharedEngine
from specviz.serving.zerogpu_service import ZeroGpuService
from specviz.tools.distill import distillation, evaluation
from specviz.tools.distill.distillation import Distillation
from specviz.tools.distill.prompts import held_out_prompts
from specviz.tools.distill.settings import DistillationSettings
from tests.support.pretend_gpu import PretendGpu, on_gpu, takes_torch_s_attention
from tests.support.tiny import Pairs, tiny_model, tiny_tokenizer

PROMPT = "The quick brown fox"


def asked(*methods: str, **settings: Any) -> list[Request]:
    options = {"prompt": PROMPT, "seed": 3, "max_new_tokens": 14, "draft_length": 3} | settings
    return [Request(method=method, **options) for method in methods]


# ---- quality and comparison --------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt2"])
def test_log_probabilities_are_those_of_the_cpu(gpu: PretendGpu, pairs: Pairs, family: str) -> None:
    """A text of several chunks, read by either model; the host waits once a chunk."""
    here, there = pairs(family), on_gpu(pairs(family))
    prompt, text = list(range(20, 220)), [40 + n * 7 % 150 for n in range(200)]
    expected = log_probabilities(here, prompt, text)
    gpu.clear()
    assert log_probabilities(there, prompt, text) == pytest.approx(expected, abs=1e-9)
    assert (gpu.reads, gpu.uploads) == (2, 3), str(gpu)
    ours, theirs = (torch.cat([*read_logits(it, "drafter", prompt, text)]).cpu() for it in (there, here))
    torch.testing.assert_close(ours, theirs)


def tables(lines: Iterator[str]) -> list[dict[str, Any]]:
    entries = [json.loads(line) for line in lines if line]
    rows: list[dict[str, Any]] = [entry for entry in entries if entry["type"] == "table"][-1]["rows"]
    for row in rows:
        assert min(row["alone_speed"], row["speed_up"]) > 0
    return [{name: value for name, value in row.items() if "speed" not in name} for row in rows]


def test_a_comparison_says_what_it_says_on_the_cpu(gpu: PretendGpu, pairs: Pairs) -> None:
    """Through the engine that many share: texts, their quality, and each alone."""
    requests = asked("verifier_only", "speed", "cascade_tokenV3", "drafter_only", temperature=0.0, inspect=2)
    expected = tables(compare(Engine(pairs("llama")), requests, threading.Event()))
    engine = SharedEngine(on_gpu(pairs("llama")))
    try:
        found = tables(compare(engine, requests, threading.Event()))
    finally:
        engine.close()
    for row, known in zip(found, expected, strict=True):
        assert row.pop("quality") == pytest.approx(known.pop("quality"))
        assert row == known


# ---- transformers' generate --------------------------------------------------------------------------------


class Ids(StoppingCriteria):
    """Ends a row at one of some ids."""

    def __init__(self, ids: list[int]) -> None:
        self.ids = ids

    def __call__(self, input_ids: Tensor, scores: Any, **_: Any) -> Tensor:
        return torch.isin(input_ids[:, -1], torch.tensor(self.ids, device=input_ids.device))


class Columns:
    """A streamer that keeps what is put."""

    def __init__(self) -> None:
        self.columns: list[list[int]] = []

    def put(self, value: Tensor) -> None:
        self.columns.append(value.tolist())

    def end(self) -> None:
        self.columns.append([])


def generated(pair: ModelPair, **options: Any) -> tuple[list[list[int]], list[list[int]]]:
    """Sequences and columns that a cascade of a padded batch writes."""
    tokenizer = pair.tokenizer
    tokenizer.padding_side, tokenizer.pad_token = "left", tokenizer.eos_token
    inputs = tokenizer(
        ["a", "The quick brown fox jumps over", "def add(a, b):"], return_tensors="pt", padding=True
    )
    placed = {name: inputs[name].to(pair.device) for name in ("input_ids", "attention_mask")}
    streamer = Columns()
    options = {
        "max_new_tokens": 16,
        "pad_token_id": 0,
        "drafter": pair.drafter,
        "streamer": streamer,
    } | options
    found: Any = pair.verifier.generate(**placed, custom_generate=specviz.cascade_generate, **options)
    assert found.device == pair.device
    return found.tolist(), streamer.columns


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("llama", {"do_sample": False, "method": "speed"}),
        ("gpt2", {"do_sample": True, "seed": 5, "top_k": 20, "top_p": 0.9, "temperature": 0.7}),
        (
            "llama",
            {
                "do_sample": True,
                "seed": 1,
                "top_k": 0,
                "num_return_sequences": 2,
                "eos_token_id": [0, 40, 41],
            },
        ),
    ],
)
def test_a_cascade_in_generate_is_that_of_the_cpu(
    gpu: PretendGpu, pairs: Pairs, family: str, options: dict[str, Any]
) -> None:
    """A padded batch, with a streamer, and with criteria of two kinds."""
    here, there = (it(pairs(family, drafter_padding=0)) for it in (lambda pair: pair, on_gpu))
    assert generated(there, **options) == generated(here, **options)
    whole, _ = generated(here, **options)
    ends: list[Any] = [Ids([row[-12] for row in whole])]
    ends.append(StopStringCriteria(here.tokenizer, [here.tokenizer.decode(whole[-1][-10:-8])]))
    found = generated(there, stopping_criteria=ends, **options)
    assert found == generated(here, stopping_criteria=ends, **options)
    assert found[0] != whole


def test_a_column_in_generate_is_waited_for_once(gpu: PretendGpu, pairs: Pairs) -> None:
    """However many rows there are: whether any has ended is asked of all at once."""
    there = on_gpu(pairs("llama", drafter_padding=0))
    gpu.clear()
    _, columns = generated(there)
    notes = [
        note for note in gpu.notes if "integrations/transformers.py" in note.where and note.kind == "read"
    ]
    assert len(notes) <= len(columns) + 12, str(gpu)


# ---- harness and sweep -------------------------------------------------------------------------------------


def test_the_harness_gets_what_it_gets_on_the_cpu(gpu: PretendGpu, pairs: Pairs) -> None:
    """Texts, likelihoods and rolling likelihoods."""
    contexts = [(PROMPT, " jumps over"), ("", "A small"), ("print(", "add")]

    def answers(pair: ModelPair) -> Any:
        model = HarnessModel(pair, temperature=0.8, seed=2, draft_length=3)
        wanted = {"until": ["e"], "max_gen_toks": 12}
        kinds = ("generate_until", "loglikelihood", "loglikelihood_rolling")
        texts, pieces, whole = (
            [Instance(kind, {}, arguments, n) for n, arguments in enumerate(given)]
            for kind, given in zip(
                kinds,
                ([(text, wanted) for text, _ in contexts], contexts, [("A small drafter",)]),
                strict=True,
            )
        )
        found = model.loglikelihood(pieces, disable_tqdm=True)
        sums = [total for total, _ in found] + model.loglikelihood_rolling(whole)
        return model.generate_until(texts), [best for _, best in found], sums

    *found, sums = answers(on_gpu(pairs("llama")))
    *expected, numbers = answers(pairs("llama"))
    assert found == expected
    assert sums == pytest.approx(numbers)


def test_a_sweep_comes_to_what_it_comes_to_on_the_cpu(gpu: PretendGpu, pairs: Pairs) -> None:
    """Samples with their fidelity, where both models ran and where one did; and texts that are timed."""
    plan = SweepPlan(points=2, temperatures=(0.0, 0.8), max_new_tokens=6, timed=1, seed=5, draft_length=3)
    items = Items("ours", tuple(Item(f"k{n}", "text", text, ("e",)) for n, text in enumerate((PROMPT,))))
    pair = pairs("llama")
    here, there = (SweepJob(plan, it, items) for it in (pair, on_gpu(pair)))
    stop = threading.Event()
    for unit in here.units:
        found = there.samples(unit, stop)
        assert found
        assert found == here.samples(unit, stop)
    assert there.header == here.header
    [timing] = there.timings(there.timed()[:1], stop)
    assert timing.tokens > 0 < timing.seconds


# ---- distillation ------------------------------------------------------------------------------------------


@takes_torch_s_attention
def test_a_distillation_is_that_of_the_cpu_but_for_its_training(
    gpu: PretendGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts, vocabulary, the student's beginning, lessons, measuring and saving; what learns needs gradients."""
    tokenizer = tiny_tokenizer(tmp_path / "verifier", chat=True)
    size = len(tokenizer)
    model = tiny_model("llama", size + 7, 2, tmp_path / "verifier", layers=3, eos_token_id=0, loud_from=size)
    model = model.requires_grad_(False).float()
    there = on_gpu(pair_from_models(model, model, tokenizer)).verifier
    for module in (distillation, evaluation):
        monkeypatch.setattr(module, "held_out_prompts", lambda: held_out_prompts()[:1])
    monkeypatch.setattr(
        evaluation, "Request", lambda text, **them: Request(text, **them | {"max_new_tokens": 5})
    )
    monkeypatch.setattr(distillation, "_fast_dtype", lambda _device: torch.float32)
    lessons: list[Any] = []

    class Training:
        """Takes every batch of an epoch twice, computed and then from memory, and trains nothing."""

        def __init__(self, _settings: Any, _directory: Path, student: Any, batches: Any) -> None:
            self.student, self.batches = student, batches

        def run(self, *_: Any) -> tuple[Any, dict[str, Any]]:
            for number in range(len(self.batches)):
                for _ in range(2):
                    lessons[-1:] = [*lessons[-1:], *self.batches.take(number)]
            return self.student, {"steps": 0}

    monkeypatch.setattr(distillation, "Training", Training)
    source = HubSource(str(tmp_path / "verifier"))
    monkeypatch.setitem(PAIRS, "tiny", PairSpec("tiny", "", source, source, "tiny", "tiny", 0, 0, ""))

    def report(verifier: Any, folder: Path) -> dict[str, Any]:
        def load_pair(pair: str | PairSpec, device: str) -> ModelPair:
            own = copy.deepcopy(verifier)
            if isinstance(pair, str):
                return pair_from_models(own, own, tokenizer)
            assert isinstance(pair.drafter, AssetSource)
            drafter, vocabulary = distillation.read_drafter(pair.drafter.path, own, size)
            drafter = drafter.to(own.device).eval()
            vocabulary.widen(drafter)
            return pair_from_models(drafter, own, tokenizer)

        monkeypatch.setattr(distillation, "load_pair", load_pair)
        monkeypatch.setattr(
            distillation, "load_verifier", lambda *_, **__: (copy.deepcopy(verifier), tokenizer)
        )
        torch.manual_seed(0)
        settings = DistillationSettings(
            "tiny", layers=(0, 2), vocabulary=200, tokens=20, answer_tokens=6, rows=4
        )
        return Distillation(settings, folder).run()

    found, expected = report(there, tmp_path / "there"), report(model, tmp_path / "here")
    assert found.pop("device") == "a pretend GPU" != expected.pop("device")
    assert found == expected
    half = len(lessons) // 2
    for ours, theirs in zip(lessons[:half], lessons[half:], strict=True):
        assert ours.device.type == "cuda"
        torch.testing.assert_close(ours.cpu(), theirs)
    here, saved = (
        load_file(tmp_path / where / "student" / "model.safetensors") for where in ("here", "there")
    )
    for name, weight in here.items():
        torch.testing.assert_close(weight, saved[name], rtol=1e-3, atol=1e-3)


# ---- the service -------------------------------------------------------------------------------------------


@pytest.fixture
def service(pairs: Pairs, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """One pair in memory, on the GPU, loaded anew whenever it is needed."""

    def load(spec: Any, *_: Any, **__: Any) -> ModelPair:
        return dataclasses.replace(on_gpu(pairs("llama")), key=spec.key)

    monkeypatch.setattr("specviz.models.loading.load_pair", load)
    monkeypatch.setattr("specviz.engine.batch._WARM_LENGTH", 256)
    monkeypatch.setattr("specviz.engine.batch._WARM_WIDTHS", (1, 4))
    service = Service(Limits(pairs=1))
    yield service
    service.close()


def timeless(lines: Iterator[str]) -> list[Any]:
    """The lines of a trace, but for what depends on the clock or names the device."""

    def without(value: Any) -> Any:
        if isinstance(value, list):
            return [without(each) for each in value]
        if not isinstance(value, dict):
            return value
        return {
            name: without(each)
            for name, each in value.items()
            if "seconds" not in name
            and "speed" not in name
            and name not in ("device", "pair", "quality", "machine")
        }

    return [without(json.loads(line)) for line in lines if line.strip()]


def test_a_service_tells_what_it_tells_on_the_cpu_and_gives_memory_back(
    service: Service, gpu: PretendGpu, pairs: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines and comparisons; an unloaded pair takes its weights, buffers and captures with it."""
    there = service
    requests = asked("verifier_only", "speed", temperature=0.0)
    stop = threading.Event()
    empty = gpu.allocated
    lines = timeless(there.lines("embedded", requests[1], stop))
    first = gpu.allocated
    compared = timeless(there.compare_lines("embedded", requests, stop))
    assert gpu.replays > 0
    assert gpu.allocated > first > empty
    assert timeless(there.lines("gpt2", requests[1], stop)) == lines
    assert gpu.allocated == pytest.approx(first, rel=0.1)  # the other pair is gone
    there.close()
    assert gpu.allocated == empty
    monkeypatch.setattr("specviz.models.loading.load_pair", lambda spec, *_, **__: pairs("llama"))
    here = Service(Limits(pairs=1))
    assert timeless(here.lines("embedded", requests[1], stop)) == lines
    assert timeless(here.compare_lines("embedded", requests, stop)) == compared
    here.close()


def test_a_pair_that_cannot_be_made_ready_serves_as_it_can(
    service: Service, gpu: PretendGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory that runs out while passes are captured ahead is no failure to load, and nothing is left of a pair."""
    stop, empty = threading.Event(), gpu.allocated

    def no_room(_self: Any) -> Iterator[None]:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr("specviz.engine.batch.Batch.warm_up", no_room)
    ends = [
        e.run.token_ids for e in service.events("embedded", asked("speed"), stop) if isinstance(e, Finished)
    ]
    assert len(ends) == 1
    service.close()
    assert gpu.allocated == empty


def test_a_pair_without_room_for_a_text_says_so_and_leaves_nothing(
    service: Service, gpu: PretendGpu, pairs: Pairs
) -> None:
    stop, empty = threading.Event(), gpu.allocated
    alone = on_gpu(pairs("llama"))
    gpu.memory = gpu.allocated + 20_000
    del alone
    gc.collect()
    with pytest.raises(EngineError, match="Memory ran out"):
        list(service.events("embedded", asked("speed", max_new_tokens=400), stop))
    service.close()
    gc.collect()
    assert gpu.allocated == empty


def test_a_lent_gpu_writes_what_the_cpu_writes(
    gpu: PretendGpu, pairs: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(*given: Any) -> Iterator[Any]:
        """What a worker tells comes back pickled."""
        return (pickle.loads(pickle.dumps(item)) for item in zerogpu_service._serve(*given))

    monkeypatch.setattr(zerogpu_service, "_on_gpu", work)
    monkeypatch.setitem(zerogpu_service._held, "embedded", on_gpu(pairs("llama")))
    service, requests = ZeroGpuService(Limits()), asked("speed", "cascade_tokenV3")
    events = list(service.events("embedded", requests, threading.Event()))
    found = {event.index: event.run.token_ids for event in events if isinstance(event, Finished)}
    assert found == dict(enumerate(run.token_ids for run in Engine(pairs("llama")).generate(requests)))
    lines = timeless(service.compare_lines("embedded", requests, threading.Event()))
    assert lines[-1]["type"] == "table"
    service.close()


# ---- the pretence ------------------------------------------------------------------------------------------


def test_modules_move_copy_and_are_made_there_as_on_cuda(gpu: PretendGpu) -> None:
    """What is tied stays tied; numbers are read back one by one."""
    with torch.device("cuda"):
        made = nn.Linear(3, 2, bias=False).requires_grad_(False)
    assert (made.weight.device, torch.tensor([]).device) == (torch.device("cuda:0"), torch.device("cpu"))
    here = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)]).requires_grad_(False)
    here[1].weight = here[0].weight
    before = here[0].weight.tolist()
    there: Any = copy.deepcopy(here).to("cuda", torch.float64)
    assert there[0].weight is there[1].weight
    assert (there[0].weight.device, there[0].weight.dtype) == (torch.device("cuda:0"), torch.float64)
    twin = copy.deepcopy(there)
    twin[0].weight += 1
    assert twin[1].weight is twin[0].weight is not there[0].weight
    assert there.float().cpu()[1].weight.tolist() == before
    gpu.clear()
    total = twin[0].weight.sum()
    assert float(total) == pytest.approx(torch.tensor(before).sum().item() + 9)
    assert (int(total.clamp(2, 2)), gpu.reads) == (2, 2)
    assert twin[0].weight[range(2)].shape == (2, 3)
