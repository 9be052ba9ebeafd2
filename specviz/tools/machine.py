"""This machine and the installed versions, in words. Imports torch only to name a GPU."""

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
    """The processor's name, family, model and widest vector instructions, and the size of the memory.

    The name alone does not distinguish generations: rented machines often report only "AMD EPYC".
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
"""Instruction sets that fused passes use, fastest first: the name in /proc/cpuinfo, and the name to show."""


def versions(*more: str) -> dict[str, str]:
    """By name, the versions of Python, of the packages on which measurements depend and of `more` packages, or "not installed"."""
    found = {"specviz": __version__, "python": platform.python_version()}
    for name in ("torch", "transformers", "flashspec", *more):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found
