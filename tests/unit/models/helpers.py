"""What the tests of the models layer share: refusals in one sentence, damaged checkpoints, answers of a hub."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub.utils import httpx

from specviz.errors import PairError
from specviz.models.loading import load_pair

ROOT = Path(__file__).parents[3]


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


def garble_header(directory: Path) -> None:
    with (directory / "model.safetensors").open("r+b") as file:
        file.write(b"\xff" * 16)


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


def convert(_: Path, target: Path) -> None:
    target.mkdir()
    (target / "model.safetensors").write_bytes(b"whole")
    (target / "config.json").write_text("{}")


def contents(cache: Path) -> set[str]:
    """What lies in a cache folder; without locks, and the compiled rules that the first load of a process leaves."""
    names = {path.name for path in cache.iterdir()} - {"compiled"}
    return {name for name in names if not name.endswith(".lock")}
