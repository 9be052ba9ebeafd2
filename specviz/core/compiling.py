"""Compiling what rounds need, the loops of `loops` and the functions of fused passes, in a process of its own, while this one
imports and loads what else it needs.

Both take what neither has: one process at a time compiles a thing, and who comes second finds it in the cache. Imports neither
torch nor numba, so that it can be the first thing that a program does.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from specviz.files import cache_directory

_CODE = "from specviz.runtime.cpu.fused import functions; functions.compile_all()"
"""As text: `core` imports nothing above it."""


@cache
def sources() -> str:
    """A hash of all code that compiled functions are made of."""
    folder = Path(__file__).parent
    fused = sorted((folder.parent / "runtime/cpu/fused").glob("*.py"))
    files = [folder / "loops.py", folder.parent / "compat/numba.py", *fused]
    return sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def compiled_directory() -> Path:
    """Where compiled functions are kept."""
    return cache_directory() / "compiled"


def _mark() -> Path:
    return compiled_directory() / f"rounds-{sources()[:16]}"


@cache
def begin() -> subprocess.Popen[bytes] | None:
    """Begin to compile, unless that has been done before: then all is only read. Returns the process that does."""
    if _mark().exists() or not find_spec("numba"):
        return None
    with suppress(OSError):
        command = [sys.executable, "-c", _CODE]
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
    return None


def is_done() -> None:
    """Keep in mind that all is compiled."""
    with suppress(OSError):
        _mark().parent.mkdir(parents=True, exist_ok=True)
        _mark().touch()


@contextmanager
def alone(name: str) -> Iterator[None]:
    """Meanwhile no other process compiles what has this name; where no file can say so, each does."""
    from filelock import FileLock  # here: a twentieth of a second

    with ExitStack() as held:
        with suppress(OSError, NotImplementedError):
            compiled_directory().mkdir(parents=True, exist_ok=True)
            held.enter_context(FileLock(compiled_directory() / f"{name}.lock"))
        yield
