"""Compiling the loops of `loops` in a process of its own, while this one imports and loads what else it needs.

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


@cache
def begin() -> Callable[[], None]:
    """Begin to compile, unless that has been done before: then they are only read. Returns what waits for the end of it."""
    source = Path(__file__).with_name("loops.py").read_bytes()
    mark = cache_directory() / "compiled" / f"loops-{sha256(source).hexdigest()[:16]}"
    child = None
    if not mark.exists() and find_spec("numba"):
        with suppress(OSError):
            command = [sys.executable, "-c", "import specviz.core.loops"]
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )

    def wait() -> None:
        if child is not None and child.wait() == 0:
            with suppress(OSError):
                mark.parent.mkdir(parents=True, exist_ok=True)
                mark.touch()

    return wait
