"""Loading: what comes from disk, what is refused and how that is said, and what is left behind."""

from __future__ import annotations

import dataclasses
import errno
import gc
import json
import os
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import errors as hub
from huggingface_hub.utils import httpx
from safetensors import SafetensorError
from transformers import (
    AutoModelForCausalLM,
    BartConfig,
    FalconConfig,
    PretrainedConfig,
    Qwen3Config,
    RwkvConfig,
)

from specviz.errors import NoRoomError, PairError
from specviz.models import registry
from specviz.models.availability import describe_pairs
from specviz.models.failures import explain
from specviz.models.loading import load_pair
from specviz.models.registry import DEFAULT_PAIR, PAIRS, AssetSource
from specviz.models.servable import check_config
from tests.support.tiny import tiny_tokenizer
from tests.unit.models.helpers import refusal, response, spec_of


def test_a_pair_loads_and_says_how_far_it_is(checkpoints: Path) -> None:
    said: list[tuple[float, str]] = []
    pair = load_pair("disk", device="cpu", progress=lambda fraction, text: said.append((fraction, text)))
    assert (pair.key, pair.title) == ("disk", "Disk pair")
    assert (pair.drafter_name, pair.verifier_name, pair.dtype) == ("Small", "Large", torch.float32)
    fractions = [fraction for fraction, _ in said]
    assert fractions == sorted(fractions)
    assert said[-1] == (1.0, "Disk pair is ready")
    assert {"Loading Small", "Loading Large"} <= {text for _, text in said}


def test_a_shipped_drafter_loads_from_the_assets_and_shares_the_tokenizer(
    checkpoints: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "ASSETS", checkpoints)
    for file in (checkpoints / "drafter").glob("tokenizer*"):
        file.unlink()
    monkeypatch.setitem(PAIRS, "disk", dataclasses.replace(PAIRS["disk"], drafter=AssetSource("drafter")))
    assert load_pair("disk", device="cpu").drafter_name == "Small"
    monkeypatch.setitem(PAIRS, "disk", dataclasses.replace(PAIRS["disk"], drafter=AssetSource("missing")))
    assert refusal() == "Small is missing from this installation: get SpecViz with its assets."
    [status] = describe_pairs([PAIRS["disk"]])
    assert not status.usable
    assert "drafter is missing" in status.note


WEIGHTS = "model.safetensors"


def change_config(folder: Path, **fields: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | fields))


def garble_header(folder: Path) -> None:
    with (folder / WEIGHTS).open("r+b") as file:
        file.write(b"\xff" * 16)


def other_files(folder: Path, **files: str) -> None:
    (folder / WEIGHTS).unlink()
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


DAMAGED = "The files of Large are damaged or incomplete: delete them where they are cached and load again."
REFUSED: list[tuple[Callable[[Path], Any], str]] = [
    (lambda it: os.truncate(it / WEIGHTS, (it / WEIGHTS).stat().st_size // 2), DAMAGED),
    (lambda it: (it / "config.json").write_text('{"model_type": "lla'), DAMAGED),
    (lambda it: (it / WEIGHTS).unlink(), DAMAGED),
    (garble_header, DAMAGED),
    (lambda it: os.truncate(it / WEIGHTS, 0), "Large is incomplete: model.safetensors is missing or empty"),
    (
        lambda it: other_files(it, model__safetensors__index__json='{"weight_map": {"a": "b.safetensors"}}'),
        "Large is incomplete: b.safetensors is missing or empty",
    ),
    (
        lambda it: change_config(it, quantization_config={"quant_method": "awq", "bits": 4}),
        "Large is quantised by awq, which is not supported",
    ),
    (
        lambda it: other_files(it, model__gguf="GGUF"),
        "Large has only GGUF weights, which is not supported",
    ),
    (
        lambda it: other_files(it, adapter_config__json="{}"),
        "Large is an adapter and holds no model.safetensors",
    ),
]


@pytest.mark.parametrize(("change", "words"), REFUSED)
def test_a_folder_without_a_whole_model_of_floats_is_refused(
    change: Callable[[Path], Any], words: str, checkpoints: Path
) -> None:
    """Only what is damaged comes with the advice to delete it."""
    change(checkpoints / "verifier")
    told = refusal()
    assert words in told
    assert ("delete" in told) == (words == DAMAGED)


def test_what_cannot_be_served_as_asked_is_refused(checkpoints: Path) -> None:
    for device in ("abacus", "cuda:99", ""):
        assert 'use "auto", "cpu" or "cuda"' in refusal(device=device)
    assert "float64, float32, bfloat16, float16" in refusal(dtype="int4")
    assert "known are exact, fast" in refusal(activations="int4")
    tiny_tokenizer(checkpoints / "drafter", lines=("other words, other merges",))
    assert "Small and Large have different tokenizers" in refusal()


OUT_OF_MEMORY = [
    MemoryError(),
    RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried"),
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
        assert refusal().startswith("Memory ran out while loading Large: choose a smaller pair")
        error.__traceback__ = None
        assert [it() for it in loaded] == [None]
    finally:
        gc.enable()


# ---- what the torch runner serves ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (RwkvConfig(), "keep a state"),
        (BartConfig(), "have an encoder"),
        (FalconConfig(alibi=True), "ALiBi"),
        (Qwen3Config(num_hidden_layers=1, layer_types=["chunked_attention"]), "chunked_attention"),
    ],
)
def test_a_config_is_refused_by_its_traits(config: PretrainedConfig, reason: str) -> None:
    with pytest.raises(PairError, match=f"of the type {config.model_type} .*{reason}.*SpecViz serves"):
        check_config(config)
    check_config(Qwen3Config())


def test_a_folder_is_refused_before_its_weights_are_read(tmp_path: Path) -> None:
    RwkvConfig().save_pretrained(tmp_path)  # and no weights
    assert "of the type rwkv keep a state" in refusal(spec_of(tmp_path, tmp_path))


# ---- errors of libraries ---------------------------------------------------------------------------------


def because(inner: Exception, outer: Exception) -> Exception:
    outer.__cause__ = inner
    return outer


def answer(kind: type[hub.HfHubHTTPError], status: int) -> Exception:
    return kind(f"{status} Error", response=response(status))


ERRORS = [
    (
        because(
            answer(hub.RepositoryNotFoundError, 401), OSError("is not a valid model identifier listed on")
        ),
        "Small was not found on the model hub",
    ),
    (
        because(hub.LocalEntryNotFoundError("Cannot find the files"), OSError("We couldn't connect to")),
        "The model hub cannot be reached from here",
    ),
    (hub.OfflineModeIsEnabled("offline"), "The model hub cannot be reached from here"),
    (httpx.ConnectTimeout("timed out"), "The model hub cannot be reached from here"),
    (answer(hub.HfHubHTTPError, 401), "The model hub does not accept the token that is set here"),
    (OSError("Consistency check failed: file should be of size 9"), "The download of Small broke off"),
    (SafetensorError("Error while deserializing header"), "The files of Small are damaged"),
    (OSError(errno.EDQUOT, "Disk quota exceeded", "/tmp/x"), "The disk is full"),
    (SafetensorError("I/O error: File too large (os error 27)"), "The disk is full"),
    (PermissionError(errno.EACCES, "Permission denied", "/tmp/x"), "The files of Small cannot be read"),
    (
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        "Memory ran out while loading Small",
    ),
    (RuntimeError("CUDA error: out of memory"), "Memory ran out while loading Small"),
    (ZeroDivisionError("in /tmp/x"), "Small could not be loaded because of an unexpected ZeroDivisionError"),
]


@pytest.mark.parametrize(("error", "start"), ERRORS)
def test_every_failure_has_its_sentence(error: Exception, start: str) -> None:
    told = explain(error, "Small")
    assert str(told).startswith(start)
    assert "/tmp" not in str(told)
    assert isinstance(told, NoRoomError) == ("Memory" in start)


# ---- the registry ----------------------------------------------------------------------------------------


def test_the_default_pair_needs_no_hub_and_unknown_ones_are_refused_with_the_known_names() -> None:
    assert PAIRS[DEFAULT_PAIR].origin == "embedded"
    assert all(spec.key == key for key, spec in PAIRS.items())
    with pytest.raises(PairError, match="embedded, embedded-specialist, embedded-skip"):
        load_pair("nope")
