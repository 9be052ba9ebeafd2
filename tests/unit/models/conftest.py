"""Checkpoints on disk, and a hub that cannot be reached, on a machine that is large enough."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch
from huggingface_hub import constants as hub_constants

from specviz.models import hub
from specviz.models.registry import PAIRS
from tests.support.memory import memory_given_back  # noqa: F401  # a fixture of all tests here
from tests.support.tiny import tiny_pair
from tests.unit.models.helpers import spec_of


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    tiny_pair("llama", folder, dtype=torch.float32)
    return folder


@pytest.fixture
def checkpoints(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two checkpoints on disk, which the registry's pair "disk" takes for hub repositories that can be reached."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    spec = spec_of(tmp_path / "drafter", tmp_path / "verifier")
    monkeypatch.setitem(PAIRS, "disk", spec)
    monkeypatch.setattr(hub, "reachable", lambda: True)
    return tmp_path


@pytest.fixture
def empty_hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hub that refuses connections, an empty cache of it, and a machine with much memory and no GPU."""
    monkeypatch.setattr(hub_constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(hub_constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=10**12))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    return tmp_path / "hub"
