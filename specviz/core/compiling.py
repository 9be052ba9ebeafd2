"""Compiling what rounds need, the loops of `loops` and the draft pass that is made of them, in a process of its own, while this one
imports and loads what else it needs.

Imports neither torch nor numba, so that it can be the first thing that a program does.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from specviz.files import cache_directory

_CODE = "from specviz.runtime.cpu.fused import functions; functions.draft()"
"""As text: `core` imports nothing above it."""


@cache
def sources() -> str:
    """A hash of all code that compiled functions are made of."""
    folder = Path(__file__).parent
    files = [folder / "loops.py", *sorted((folder.parent / "runtime/cpu/fused").glob("*.py"))]
    return sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


@cache
def begin() -> Callable[[], None]:
    """Begin to compile, unless that has been done before: then they are only read. Returns what waits for the end of it."""
    mark = cache_directory() / "compiled" / f"rounds-{sources()[:16]}"
    child = None
    if not mark.exists() and find_spec("numba"):
        with suppress(OSError):
            command = [sys.executable, "-c", _CODE]
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )

    def wait() -> None:
        if child is not None and child.wait() == 0:
            with suppress(OSError):
                mark.parent.mkdir(parents=True, exist_ok=True)
                mark.touch()

    return wait
