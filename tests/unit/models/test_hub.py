"""The hub: unreachable, gated, cached, downloading."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import errors as hub_errors
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from specviz.models import hub
from specviz.models.availability import describe_pairs
from specviz.models.loading import load_pair
from tests.support.tiny import tiny_pair
from tests.unit.models.helpers import put_into_hub_cache, refusal, response


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


def test_a_cached_pair_loads_without_a_hub(empty_hub_cache: Path, tmp_path: Path) -> None:
    tiny_pair("opt", tmp_path)
    put_into_hub_cache(empty_hub_cache, "facebook/opt-125m", tmp_path / "drafter")
    snapshot = put_into_hub_cache(empty_hub_cache, "facebook/opt-350m", tmp_path / "verifier")
    AutoModelForCausalLM.from_pretrained(snapshot).save_pretrained(snapshot, max_shard_size="40KB")
    (snapshot / "model.safetensors").unlink()
    shards = sorted(snapshot.glob("model-*.safetensors"))
    assert len(shards) > 1
    assert {it.spec.key: it for it in describe_pairs()}["opt"].cached
    assert load_pair("opt", device="cpu").verifier_name == "opt-350m"

    shards[1].unlink()
    assert not {it.spec.key: it for it in describe_pairs()}["opt"].cached
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
    make: Any = hub.download_bar("Large", lambda fraction, text: said.append((fraction, text)))
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
