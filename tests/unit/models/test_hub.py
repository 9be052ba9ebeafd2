"""The hub and the list of pairs: what is unreachable, gated, cached, too large, and how far a download is."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

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
    assert refusal("gpt2").startswith("The model hub cannot be reached from here and gpt2 is not cached here")
    asked, real = list[None](), hub.reachable
    monkeypatch.setattr(hub, "reachable", lambda: asked.append(None) or real())
    found = listed()
    assert list(found) == list(PAIRS)
    assert len(asked) == 1
    for it in found.values():
        assert it.usable == (it.spec.origin == "embedded")
        if it.spec.origin == "hub":
            assert (it.cached, it.note) == (False, "not cached, and the model hub cannot be reached")
    assert found["smollm2"].parameters == "135M → 1.7B"


def test_what_is_gated_and_what_is_too_large_is_said_before_anything_is_downloaded(
    empty_hub_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(_: str) -> None:
        raise hub_errors.GatedRepoError("403 Client Error", response=response(403))

    monkeypatch.setattr(hub, "reachable", lambda: True)
    monkeypatch.setattr("huggingface_hub.auth_check", denied)
    assert refusal("gemma2").startswith("gemma-2-2b-it is gated: accept its licence")
    gemma, gpt2 = (listed()[key] for key in ("gemma2", "gpt2"))
    assert not gemma.usable
    assert gemma.note.startswith("gated: accept the licence")
    assert (gpt2.usable, gpt2.note) == (True, "will be downloaded from the model hub")
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=8_000_000_000))
    large = listed()["pythia"]
    assert (large.usable, large.note) == (False, "needs 53.0 GB of memory, 8.0 GB are free")
    assert large.size_gb == pytest.approx(47.666, abs=1e-3)


def test_the_list_says_what_the_embedded_pair_will_fetch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path))
    status = describe_pairs()[0]
    assert (status.usable, status.cached) == (True, False)
    assert status.note == "fetches 93 MB once from the Python package index"


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
    assert refusal("opt").startswith("The model hub cannot be reached from here and opt-350m")


def test_a_file_that_another_process_is_downloading_stays(empty_hub_cache: Path) -> None:
    """Those that a killed one left are deleted."""
    blobs, locks = (empty_hub_cache / each for each in ("models--gpt2/blobs", ".locks/models--gpt2"))
    locks.mkdir(parents=True)
    blobs.mkdir(parents=True)
    for name in ("downloading.1.incomplete", "downloading.2.incomplete", "killed.3.incomplete", "whole"):
        (blobs / name).touch()
    with FileLock(locks / "downloading.lock"):
        delete_abandoned("gpt2")
    assert {each.name for each in blobs.iterdir()} == {
        "downloading.1.incomplete",
        "downloading.2.incomplete",
        "whole",
    }
    delete_abandoned("gpt2")
    assert [each.name for each in blobs.iterdir()] == ["whole"]


def test_a_download_tells_how_far_it_is_and_draws_nothing(capfd: Any) -> None:
    said: list[tuple[float, str]] = []
    make: Any = hub.download_bar("Large", lambda fraction, text: said.append((fraction, text)))
    with make(total=4_000_000, unit="B", unit_scale=True, disable=True, name="x", mininterval=0) as bar:
        bar.update(1_000_000)
        bar.update(3_000_000)
    with make(total=900, unit="B") as small:
        small.update(900)
    assert said[-1] == (0.9, "Downloading Large: 4 of 4 MB")
    assert (0.225, "Downloading Large: 1 of 4 MB") in said
    assert capfd.readouterr() == ("", "")
