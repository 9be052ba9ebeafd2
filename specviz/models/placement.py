"""Placement: the device and dtype with which a pair is loaded, and whether it fits into the device's memory."""

from __future__ import annotations

from dataclasses import dataclass

import psutil
import torch

from specviz.errors import NoRoomError, PairError
from specviz.models.registry import PairSpec
from specviz.runtime.memory import spare_memory

DTYPE_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of a parameter in each dtype that can be requested."""
_SMALL = 1_000_000_000
"""Maximum parameters of a pair that is loaded in float32 on a GPU without bfloat16."""
WEIGHTS_SHARE = 0.9
"""Maximum share of the free memory that weights may take: KV caches and activations need the rest."""


@dataclass(frozen=True)
class Placement:
    """Where a pair is loaded.

    Attributes:
        device: of both models; of the drafter alone if `sharded`.
        dtype: of both models' parameters.
        sharded: whether the verifier is divided among all GPUs.
    """

    device: torch.device
    dtype: torch.dtype
    sharded: bool = False


def choose_placement(spec: PairSpec, device: str, dtype: str) -> Placement:
    """The placement of a pair for a device and a dtype, each given by name or as "auto".

    Raises:
        PairError: the device is not available, or the dtype unknown.
        NoRoomError: the weights do not fit into the free memory.
    """
    where = find_device(device)
    name = dtype_name(dtype, where, spec.loaded_parameters)
    needed = spec.loaded_parameters * DTYPE_BYTES[name]
    free = free_memory(where)
    placement = Placement(where, getattr(torch, name))
    if free is None or needed <= free * WEIGHTS_SHARE:
        return placement
    if where.type == "cuda" and where.index is None and torch.cuda.device_count() > 1:
        free = sum(free_gpu_memory())
        if needed <= free * WEIGHTS_SHARE:
            return Placement(where, placement.dtype, sharded=True)
    raise NoRoomError(
        f"{spec.title} does not fit into memory: in {name} it needs {needed / WEIGHTS_SHARE / 1e9:.1f} GB free and "
        f"{free / 1e9:.1f} GB are; choose a smaller pair or dtype, or another device."
    )


def find_device(name: str) -> torch.device:
    """The device called `name`; "auto" is CUDA if there is a GPU, else the CPU.

    Raises:
        PairError: the device is not available here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, ValueError, TypeError, NotImplementedError):
        raise PairError('The device asked for is not available here: use "auto", "cpu" or "cuda".') from None
    return device


def dtype_name(name: str, device: torch.device, parameters: int = 0) -> str:
    """The name of a dtype in `DTYPE_BYTES`; "auto" is bfloat16 on CUDA, else float32.

    GPUs below compute capability 8.0 only emulate bfloat16, without tensor cores. On these, "auto" is float32 for a pair of up
    to a billion `parameters`, and float16 for a larger pair.

    Raises:
        PairError: there is no such dtype.
    """
    if name == "auto":
        if device.type != "cuda":
            return "float32"
        if torch.cuda.get_device_capability(device) >= (8, 0):
            return "bfloat16"
        return "float32" if parameters <= _SMALL else "float16"
    if name not in DTYPE_BYTES:
        raise PairError(f"The dtype asked for is unknown: use auto, {', '.join(DTYPE_BYTES)}.")
    return name


def free_memory(device: torch.device) -> int | None:
    """Free bytes on a device; None for a device other than the CPU or CUDA."""
    if device.type == "cuda":
        return spare_memory(device)
    return int(psutil.virtual_memory().available) if device.type == "cpu" else None


def free_gpu_memory() -> list[int]:
    """Free bytes of every GPU, by index."""
    return [spare_memory(index) for index in range(torch.cuda.device_count())]
