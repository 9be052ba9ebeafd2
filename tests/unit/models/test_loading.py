"""Loading: what comes from disk, what is refused and how that is said, and what is left behind."""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

from specviz.models import registry, smollm2
from specviz.models.availability import describe_pairs
from specviz.models.loading import load_pair
from specviz.models.pair import ModelPair
from specviz.models.registry import PAIRS, AssetSource, EmbeddedSource
from specviz.runtime.cpu.fused.runner import FusedModel
from tests.support.tiny import tiny_tokenizer
from tests.unit.models.helpers import garble_header, refusal


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


def test_a_shipped_drafter_loads_from_the_assets_and_shares_the_tokenizer(
    checkpoints: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "ASSETS", checkpoints)
    for file in (checkpoints / "drafter").glob("tokenizer*"):
        file.unlink()
    monkeypatch.setitem(PAIRS, "disk", dataclasses.replace(PAIRS["disk"], drafter=AssetSource("drafter")))
    assert load_pair("disk", device="cpu").drafter_name == "Small"

    monkeypatch.setitem(PAIRS, "disk", dataclasses.replace(PAIRS["disk"], drafter=AssetSource("missing")))
    assert refusal(device="cpu") == "Small is missing from this installation: get SpecViz with its assets."
    status = {it.spec.key: it for it in describe_pairs()}["disk"]
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

    def second_fails(folder: Path, **options: Any) -> Any:
        if folder.name == "verifier":
            raise error
        model, info = real(folder, **options)
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


@pytest.mark.parametrize("key", ["embedded", "embedded-skip"])
def test_the_real_embedded_pair_answers_and_drafts(key: str) -> None:
    pair = load_pair(key, device="cpu")
    assert isinstance(PAIRS[key].verifier, EmbeddedSource)
    assert isinstance(pair.verifier, LlamaForCausalLM)
    assert pair.vocabulary_size == 49152
    assert pair.context_length == 8192
    assert pair.is_chat
    assert pair.eos_token_ids == {2}
    drafter, verifier = pair.drafter_model, pair.verifier_model
    assert isinstance(drafter, FusedModel)
    assert isinstance(verifier, FusedModel)
    assert pair.precision == "Q4_1, Q8_0 weights, exact activations"
    shares = drafter.decoder._arena is verifier.decoder._arena
    assert shares == (key == "embedded-skip"), "a distilled drafter has weights of its own"
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
    assert isinstance(AutoTokenizer.from_pretrained(smollm2.verifier_directory()), type(pair.tokenizer))


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float64])
def test_weights_of_a_dtype_without_fused_passes_run_on_torch(dtype: torch.dtype, checkpoints: Path) -> None:
    file = checkpoints / "verifier" / "model.safetensors"
    weights = {name: it.to(dtype) if it.ndim == 2 else it for name, it in load_file(file).items()}
    save_file(weights, file, metadata={"format": "pt"})
    assert load_pair("disk", device="cpu").precision


def quantise(directory: Path) -> None:
    config = json.loads((directory / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "awq", "bits": 4}
    (directory / "config.json").write_text(json.dumps(config))


def pack_weights(directory: Path) -> None:
    weights = load_file(directory / "model.safetensors")
    name = next(each for each in weights if each.endswith("weight") and weights[each].ndim == 2)
    weights[name.replace("weight", "qweight")] = weights.pop(name).to(torch.int32)
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})


def leave_gguf(directory: Path) -> None:
    lose_weights(directory)
    (directory / "model-Q4_K_M.gguf").write_bytes(b"GGUF" + bytes(64))


def leave_adapter(directory: Path) -> None:
    lose_weights(directory)
    save_file({"lora_A.weight": torch.zeros(2, 2)}, directory / "adapter_model.safetensors")
    (directory / "adapter_config.json").write_text("{}")


def lose_shard(directory: Path) -> None:
    lose_weights(directory)
    named = json.dumps({"weight_map": {"lm_head.weight": "model-00002-of-00002.safetensors"}})
    (directory / "model.safetensors.index.json").write_text(named)


def empty_weights(directory: Path) -> None:
    os.truncate(directory / "model.safetensors", 0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (quantise, "Large is quantised by awq, a format that is not read"),
        (pack_weights, "Large is quantised by GPTQ, AWQ or bitsandbytes, a format that is not read"),
        (leave_gguf, "Large holds no safetensors and only GGUF, a format that is not read"),
        (leave_adapter, "Large is an adapter and holds no model.safetensors"),
        (
            lose_shard,
            "Large is incomplete: model-00002-of-00002.safetensors, which its index names, is missing",
        ),
        (empty_weights, "Large is incomplete: model.safetensors is empty"),
    ],
)
def test_a_folder_that_is_not_read_says_what_it_holds(
    change: Callable[[Path], None], words: str, checkpoints: Path
) -> None:
    """Before any weight is read, and without the advice to delete what is whole."""
    change(checkpoints / "verifier")
    told = refusal(device="cpu")
    assert words in told
    assert "delete" not in told
