"""This machine and what is installed on it, in words. Imports torch only to name a GPU: the shell describes a CPU without it."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

import psutil

from specviz import __version__


def describe_machine(device: str) -> str:
    """A device in words, such as "2 CPU cores"."""
    if device.startswith("cuda"):
        import torch

        return torch.cuda.get_device_name(device)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return f"{cores} CPU core{'s' if cores != 1 else ''}"


def describe_processor() -> str:
    """The processor's own name, where the system tells it, what it multiplies with, and the memory beside it.

    Rented machines often say no more than "AMD EPYC": family and model tell which generation.
    """
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0]
    except OSError:
        text = ""
    pairs = (line.partition(":") for line in text.splitlines())
    found = {key.strip(): value.strip() for key, _, value in pairs}
    name = found.get("model name") or platform.processor() or platform.machine()
    numbers = [f"{title} {found[key]}" for key, title in _NUMBERS if key in found]
    vectors = [title for flag, title in _VECTORS if flag in found.get("flags", "").split()]
    details = ", ".join(numbers + vectors[:1])
    memory = f"{psutil.virtual_memory().total / 2**30:.0f} GiB of memory"
    return f"{name} ({details}), {memory}" if details else f"{name}, {memory}"


_NUMBERS = (("cpu family", "family"), ("model", "model"))
_VECTORS = (("amx_int8", "AMX"), ("avx512_vnni", "AVX-512-VNNI"), ("avx_vnni", "AVX-VNNI"), ("avx2", "AVX2"))
"""Linux's names of what fused passes use, the fastest first."""


def versions() -> dict[str, str]:
    """What is installed of all that a measurement depends on."""
    found = {"specviz": __version__, "python": platform.python_version()}
    for name in ("torch", "transformers", "flashspec"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found
