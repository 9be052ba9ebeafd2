"""Loading: what comes from disk, what is refused and how that is said, and what is left behind."""

from __future__ import annotations

import dataclasses
import errno
import gc
import os
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import httpx
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, BartConfig, FalconConfig, RwkvConfig

from specviz.errors import NoRoomError, PairError
from specviz.models import registry
from specviz.models.failures import explain
from specviz.models.loading import load_pair
from specviz.models.registry import PAIRS, AssetSource
from specviz.models.servable import check_config
from tests.support.tiny import tiny_tokenizer
from tests.unit.models.helpers import refusal, response, spec_of


def test_a_shipped_drafter_loads_from_the_assets_and_shares_the_tokenizer(
    checkpoints: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "ASSETS", checkpoints)
    for file in (checkpoints / "drafter").glob("tokenizer*"):
        file.unlink()
    monkeypatch.setitem(PAIRS, "disk", dataclasses.replace(PAIRS["disk"], drafter=AssetSource("drafter")))
    assert load_pair("disk", device="cpu").drafter_name == "Small"
    monkeypatch.setitem(PAIRS, "disk", dataclasses.replace(PAIRS["disk"], drafter=AssetSource("missing")))
    assert "Small is missing" in refusal()


WEIGHTS = "model.safetensors"
QUANTISED = '{"model_type": "llama", "quantization_config": {"quant_method": "awq"}}'
REFUSED: list[tuple[Callable[[Path], Any], str, bool]] = [
    (lambda it: os.truncate(it / WEIGHTS, (it / WEIGHTS).stat().st_size // 2), "Large", True),
    (lambda it: (it / "config.json").write_text('{"model_type": "lla'), "Large", True),
    (lambda it: (it / WEIGHTS).unlink(), "Large", True),
    (lambda it: (it / WEIGHTS).write_bytes(b"\xff" * 1000), "Large", True),
    (lambda it: os.truncate(it / WEIGHTS, 0), WEIGHTS, False),
    (lambda it: (it / "config.json").write_text(QUANTISED), "quantised", False),
    (lambda it: (it / WEIGHTS).rename(it / "model.gguf"), "GGUF", False),
    (lambda it: (it / WEIGHTS).rename(it / "adapter_config.json"), "adapter", False),
]


@pytest.mark.parametrize(("change", "word", "is_damaged"), REFUSED)
def test_a_folder_without_a_whole_model_of_floats_is_refused(
    change: Callable[[Path], Any], word: str, is_damaged: bool, checkpoints: Path
) -> None:
    """Only what is damaged comes with the advice to delete it."""
    change(checkpoints / "verifier")
    told = refusal()
    assert word in told
    assert ("delete" in told) == is_damaged


def test_what_cannot_be_served_as_asked_is_refused(checkpoints: Path) -> None:
    for device in ("abacus", "cuda:99", ""):
        assert '"auto", "cpu" or "cuda"' in refusal(device=device)
    assert "bfloat16" in refusal(dtype="int4")
    assert "fast" in refusal(activations="int4")
    tiny_tokenizer(checkpoints / "drafter", lines=("other words, other merges",))
    assert "different tokenizers" in refusal()


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
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
        assert "Memory" in refusal()
        error.__traceback__ = None
        assert [it() for it in loaded] == [None]
    finally:
        gc.enable()


def test_a_config_is_refused_by_its_traits() -> None:
    """test_architectures.py has the types."""
    for config in (FalconConfig(alibi=True), BartConfig()):
        with pytest.raises(PairError, match=config.model_type):
            check_config(config)
    check_config(FalconConfig())


def test_a_folder_is_refused_before_its_weights_are_read(tmp_path: Path) -> None:
    RwkvConfig().save_pretrained(tmp_path)  # and no weights
    assert "rwkv" in refusal(spec_of(tmp_path, tmp_path))


# ---- errors of libraries ---------------------------------------------------------------------------------

ERRORS = [
    (httpx.ConnectTimeout("timed out"), "cannot be reached"),
    (HfHubHTTPError("401 Error", response=response(401)), "log in"),
    (SafetensorError("Error while deserializing header"), "damaged"),
    (OSError(errno.EDQUOT, "Disk quota exceeded", "/tmp/x"), "disk is full"),
    (SafetensorError("I/O error: File too large (os error 27)"), "disk is full"),
    (PermissionError(errno.EACCES, "Permission denied", "/tmp/x"), "permissions"),
    (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), "Memory"),
    (RuntimeError("CUDA error: out of memory"), "Memory"),
    (ZeroDivisionError("in /tmp/x"), "ZeroDivisionError"),
]


@pytest.mark.parametrize(("error", "words"), ERRORS)
def test_every_failure_has_its_sentence(error: Exception, words: str) -> None:
    told = explain(error, "Small")
    assert words in str(told)
    assert "/tmp" not in str(told)
    assert isinstance(told, NoRoomError) == ("Memory" in words)
