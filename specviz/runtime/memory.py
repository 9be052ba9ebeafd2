"""Memory: what is spare, what a run takes at most, how fast it is read; and waiting for a device. Knows no model."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from pathlib import Path
from typing import Any

import torch

_READ = 1 << 28
"""Bytes read in one go to measure bandwidth: far more than any cache holds."""
_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")

capturing = threading.Lock()
"""Held while a pass is captured on a GPU: by one thread at a time, and no other may synchronise the device meanwhile."""


def synchronize(device: Any) -> None:
    """Wait until a device has done the work that this thread queued.

    Not the work of other threads: that would break a capture in one of them.
    """
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


def give_back_memory() -> None:
    """Return free memory to the system; allocators keep it, above all what many threads have used."""
    if torch.cuda.is_available():
        with capturing:
            torch.cuda.empty_cache()
    with contextlib.suppress(OSError, AttributeError):  # other systems' C libraries have no such thing
        ctypes.CDLL(None).malloc_trim(0)


def spare_memory(device: Any) -> int:
    """Bytes of a GPU that are free, or reserved by torch and unused; not what only captured passes may use."""
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    captures = _unused_by_captures(getattr(device, "index", device)) if kept else 0
    return int(torch.cuda.mem_get_info(device)[0] + kept - captures)


def _unused_by_captures(index: int | None) -> int:
    """Bytes that are reserved for captured passes and lie between what they use."""
    index = torch.cuda.current_device() if index is None else index
    return sum(
        segment["total_size"] - segment["allocated_size"]
        for segment in torch.cuda.memory_snapshot()
        if segment["device"] == index and tuple(segment.get("segment_pool_id", ())) not in ((), (0, 0))
    )


class MemoryReader:
    """Reads more than any cache holds, from one end to the other, with the threads set then."""

    def __init__(self, device: Any) -> None:
        """On a device, whose memory it takes as long as it lives: 256 MB, on a GPU four times that."""
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


def bandwidth(device: Any) -> float:
    """Bytes a second of long sequential reads; the best of a few."""
    reader = MemoryReader(device)
    return max(reader.read() for _ in range(6))


class PeakMemory:
    """The most memory taken at once between making this and `read`, beyond what was taken before."""

    def __init__(self, device: Any) -> None:
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
