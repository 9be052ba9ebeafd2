"""A device's memory, and waiting for a device."""

from __future__ import annotations

import contextlib
import ctypes
import threading

import torch

capturing = threading.Lock()
"""Held while a pass is captured on a GPU: only one thread may capture, and no other may synchronise the device meanwhile."""


def synchronize(device: torch.device) -> None:
    """Wait until a device has done the work that this thread queued.

    Waiting for other threads' work would break a capture in one of them.
    """
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


def give_back_memory() -> None:
    """Return freed memory to the system: allocators hold on to it, above all if many threads used it."""
    if torch.cuda.is_available():
        with capturing:
            torch.cuda.empty_cache()
    with contextlib.suppress(OSError, AttributeError, TypeError):  # other systems' C libraries lack it
        ctypes.CDLL(None).malloc_trim(0)


def spare_memory(device: torch.device | int) -> int:
    """Bytes of a GPU that are free, or reserved by torch and unused."""
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0] + unused)
