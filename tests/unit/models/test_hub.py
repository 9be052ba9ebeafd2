"""The hub and the list of pairs: what is unreachable, gated, cached, too large, and how far a download is."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from filelock import FileLock
from huggingface_hub import errors as hub_errors
from transformers import AutoModelForCausalLM

from specviz.compat.huggingface_hub import delete_abandoned
from specviz.models import hub
from specviz.models.availability import PairStatus, describe_pairs
from specviz.models.loading import load_pair
from specviz.models.registry import PAIRS
from tests.support.tiny import tiny_pair
from tests.unit.models.helpers import put_into_hub_cache, refusal, response


def listed() -> dict[str, PairStatus]:
    return {it.spec.key: it for it in describe_pairs()}


def test_without_a_hub_only_cached_pairs_can_be_used_and_it_is_asked_once(
    empty_hub_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "cannot be reached" in refusal("gpt2")
    asked, real = list[None](), hub.reachable
    monkeypatch.setattr(hub, "reachable", lambda: asked.append(None) or real())
    found = listed()
    assert list(found) == list(PAIRS)
    assert len(asked) == 1
    for it in found.values():
        assert it.usable == (it.spec.origin == "embedded")
        assert it.spec.origin != "hub" or not it.cached


@pytest.mark.parametrize("index", ["null", "[]", '{"weight_map": null}', '{"weight_map": {"a": 1}}'])
def test_a_damaged_index_in_the_cache_is_no_cached_model(
    index: str, empty_hub_cache: Path, tmp_path: Path
) -> None:
    tiny_pair("opt", tmp_path)
    snapshot = put_into_hub_cache(empty_hub_cache, "facebook/opt-125m", tmp_path / "drafter")
    (snapshot / "model.safetensors").unlink()
    (snapshot / "model.safetensors.index.json").write_text(index)
    assert not listed()["opt"].cached


def test_what_is_gated_and_what_is_too_large_is_said_before_anything_is_downloaded(
    empty_hub_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(_: str) -> None:
        raise hub_errors.GatedRepoError("403 Client Error", response=response(403))

    monkeypatch.setattr(hub, "reachable", lambda: True)
    monkeypatch.setattr("huggingface_hub.auth_check", denied)
    gemma, gpt2 = (listed()[key] for key in ("gemma2", "gpt2"))
    assert (gemma.usable, gpt2.usable) == (False, True)
    assert "gated" in gemma.note
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=8_000_000_000))
    large = listed()["pythia"]
    assert not large.usable
    assert "8.0 GB" in large.note


def test_a_cached_pair_loads_without_a_hub(empty_hub_cache: Path, tmp_path: Path) -> None:
    tiny_pair("opt", tmp_path)
    put_into_hub_cache(empty_hub_cache, "facebook/opt-125m", tmp_path / "drafter")
    snapshot = put_into_hub_cache(empty_hub_cache, "facebook/opt-350m", tmp_path / "verifier")
    AutoModelForCausalLM.from_pretrained(snapshot).save_pretrained(snapshot, max_shard_size="40KB")
    (snapshot / "model.safetensors").unlink()
    shards = sorted(snapshot.glob("model-*.safetensors"))
    assert len(shards) > 1
    assert listed()["opt"].cached
    assert load_pair("opt", device="cpu").verifier_name == "opt-350m"
    shards[1].unlink()
    assert not listed()["opt"].cached
    assert "cannot be reached" in refusal("opt")


def test_a_file_that_another_process_is_downloading_stays(empty_hub_cache: Path) -> None:
    """Those that a killed one left are deleted."""
    blobs, locks = (empty_hub_cache / each for each in ("models--gpt2/blobs", ".locks/models--gpt2"))
    locks.mkdir(parents=True)
    blobs.mkdir(parents=True)
    for name in ("downloading.1.incomplete", "killed.2.incomplete", "whole"):
        (blobs / name).touch()
    with FileLock(locks / "downloading.lock"):
        delete_abandoned("gpt2")
    assert {each.name for each in blobs.iterdir()} == {"downloading.1.incomplete", "whole"}
    delete_abandoned("gpt2")
    assert [each.name for each in blobs.iterdir()] == ["whole"]
