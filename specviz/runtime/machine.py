"""The machine that measures: what it is in words, how fast it reads memory, and the most memory a run took.

Knows devices and clocks; knows no model and no page. Imports torch only when asked about a device.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import threading
import time
from importlib import metadata
from pathlib import Path
from typing import Any

_READ = 1 << 28
"""Bytes read in one go to measure bandwidth: far more than any cache holds."""
capturing = threading.Lock()
"""Held while a pass is captured on a GPU: by one thread at a time, and nobody may stop the device meanwhile."""
_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def describe_machine(device: str) -> str:
    """A device in words, such as "2 CPU cores"."""
    if device.startswith("cuda"):
        import torch

        return torch.cuda.get_device_name(device)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return f"{cores} CPU core{'s' if cores != 1 else ''}"


def describe_processor() -> str:
    """The processor's own name, where the system tells it, and the memory beside it."""
    import psutil

    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    return f"{name}, {psutil.virtual_memory().total / 2**30:.0f} GiB of memory"


def versions() -> dict[str, str]:
    """What is installed of all that a measurement depends on."""
    from specviz import __version__

    found = {"specviz": __version__, "python": platform.python_version()}
    for name in ("torch", "transformers", "flashspec"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def synchronize(device: Any) -> None:
    """Wait until a device has done all that this thread gave it.

    Not all that anybody gave it: that would break what another thread captures just now.
    """
    if device.type == "cuda":
        import torch

        torch.cuda.current_stream(device).synchronize()


def bandwidth(device: Any) -> float:
    """Bytes a second of long sequential reads with the threads set now; the best of a few, by two kernels."""
    import torch

    rows = _READ * (4 if device.type == "cuda" else 1) // (4 * 4096)
    memory, vector = torch.ones(rows, 4096, device=device), torch.ones(4096, device=device)
    best = 0.0
    for _ in range(6):
        for read in (memory.sum, lambda: memory @ vector):
            synchronize(device)
            begin = time.perf_counter()
            read()
            synchronize(device)
            best = max(best, memory.numel() * 4 / (time.perf_counter() - begin))
    return best


def give_back_memory() -> None:
    """Give memory that is free back to the system: allocators keep it, most of all what many threads have used."""
    import torch

    if torch.cuda.is_available():
        with capturing:
            torch.cuda.empty_cache()
    with contextlib.suppress(OSError, AttributeError):  # other systems' C libraries have no such thing
        ctypes.CDLL(None).malloc_trim(0)


def spare_memory(device: Any) -> int:
    """Bytes of a GPU that are free, or that torch keeps and nobody uses."""
    import torch

    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0] + kept)


class PeakMemory:
    """The most memory taken at once between making this and `read`, beyond what was taken before."""

    def __init__(self, device: Any) -> None:
        self._device = device
        if device.type == "cuda":
            import torch

            torch.cuda.reset_peak_memory_stats(device)
            self._before: int | None = torch.cuda.memory_allocated(device)
            return
        try:
            _CLEAR.write_text("5")  # Linux forgets the process's peak so far
            self._before = _resident("VmRSS")
        except OSError:
            self._before = None

    def read(self) -> int | None:
        """Bytes; None where the system does not tell."""
        if self._before is None:
            return None
        if self._device.type == "cuda":
            import torch

            return max(0, int(torch.cuda.max_memory_allocated(self._device)) - self._before)
        peak = _resident("VmHWM")
        return None if peak is None else max(0, peak - self._before)


def _resident(name: str) -> int | None:
    """A figure of /proc/self/status in bytes."""
    for line in _STATUS.read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return None
