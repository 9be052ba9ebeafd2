"""Memory as a benchmark measures it: bandwidth of long reads, and the most that a run takes at once."""

from __future__ import annotations

import time
from pathlib import Path

import torch

from specviz.runtime.memory import synchronize

_READ = 1 << 28
"""Buffer size of the bandwidth probe in bytes; larger than any cache."""
_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class MemoryReader:
    """Reads a buffer larger than any cache from end to end, with the number of threads set at that time."""

    def __init__(self, device: torch.device) -> None:
        """Allocate the buffer: 256 MB, on a GPU 1 GB."""
        rows = _READ * (4 if device.type == "cuda" else 1) // (4 * 4096)
        self._device = device
        self._memory, self._vector = torch.ones(rows, 4096, device=device), torch.ones(4096, device=device)

    def read(self) -> float:
        """Bytes a second, by the better of two kernels."""
        best = 0.0
        for read in (self._memory.sum, lambda: self._memory @ self._vector):
            synchronize(self._device)
            begin = time.perf_counter()
            read()
            synchronize(self._device)
            best = max(best, self._memory.numel() * 4 / (time.perf_counter() - begin))
        return best


def bandwidth(device: torch.device) -> float:
    """Bytes a second of long sequential reads; the best of six."""
    reader = MemoryReader(device)
    return max(reader.read() for _ in range(6))


class PeakMemory:
    """The most memory allocated at once between creation and `read`, beyond what was allocated before."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        if device.type == "cuda":
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
            return max(0, int(torch.cuda.max_memory_allocated(self._device)) - self._before)
        peak = _resident("VmHWM")
        return None if peak is None else max(0, peak - self._before)


def _resident(name: str) -> int | None:
    """A figure of /proc/self/status in bytes."""
    for line in _STATUS.read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return None
