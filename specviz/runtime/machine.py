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
    """The processor's own name, where the system tells it, and the memory beside it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    return f"{name}, {psutil.virtual_memory().total / 2**30:.0f} GiB of memory"


def versions() -> dict[str, str]:
    """What is installed of all that a measurement depends on."""
    found = {"specviz": __version__, "python": platform.python_version()}
    for name in ("torch", "transformers", "flashspec"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found
