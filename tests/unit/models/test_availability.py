"""The list of pairs: what can be used here and now, and what is missing for the others."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from huggingface_hub import errors as hub_errors

from specviz.models import hub
from specviz.models.availability import describe_pairs
from specviz.models.registry import PAIRS
from tests.unit.models.helpers import response


def test_the_list_without_a_hub_says_what_can_be_used_and_asks_once(
    empty_hub_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[None] = []
    real = hub.reachable
    monkeypatch.setattr(hub, "reachable", lambda: asked.append(None) or real())
    listed = describe_pairs()
    assert [it.spec.key for it in listed] == list(PAIRS)
    assert len(asked) == 1
    for it in listed:
        assert it.usable == (it.spec.origin == "embedded")
        if it.spec.origin == "hub":
            assert not it.cached
            assert it.note == "not cached, and the model hub cannot be reached"
    assert {it.spec.key: it.parameters for it in listed}["smollm2"] == "135M → 1.7B"


def test_the_list_says_what_is_gated_and_what_is_too_large(
    empty_hub_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(_: str) -> None:
        raise hub_errors.GatedRepoError("403 Client Error", response=response(403))

    monkeypatch.setattr(hub, "reachable", lambda: True)
    monkeypatch.setattr("huggingface_hub.auth_check", denied)
    listed = {it.spec.key: it for it in describe_pairs()}
    assert not listed["gemma2"].usable
    assert listed["gemma2"].note.startswith("gated: accept the licence")
    assert listed["gpt2"].usable
    assert listed["gpt2"].note == "will be downloaded from the model hub"
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=8_000_000_000))
    large = {it.spec.key: it for it in describe_pairs()}["pythia"]
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
