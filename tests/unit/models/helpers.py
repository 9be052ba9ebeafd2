"""What the tests of the models layer share: pairs of folders, refusals in one sentence, answers of a hub."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub.utils import httpx

from specviz.errors import PairError
from specviz.models.loading import load_pair
from specviz.models.registry import HubSource, PairSpec

ROOT = Path(__file__).parents[3]


def spec_of(drafter: Path, verifier: Path) -> PairSpec:
    """A pair of two folders."""
    sources = HubSource(str(drafter)), HubSource(str(verifier))
    return PairSpec("disk", "Disk pair", *sources, "Small", "Large", 1, 1, "")


def refusal(key: str | PairSpec = "disk", **options: Any) -> str:
    """The sentence a pair is refused with: one sentence, without paths or names of Python's."""
    with pytest.raises(PairError) as caught:
        load_pair(key, **{"device": "cpu"} | options)
    sentence = str(caught.value)
    assert caught.value.__context__ is None
    assert sentence.endswith(".")
    assert not [each for each in ("\n", "Traceback", str(ROOT), "/tmp") if each in sentence]
    return sentence


def response(status: int) -> Any:
    return httpx.Response(status, request=httpx.Request("GET", "https://hub.invalid/model"))


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
