"""One upload before a round and one download after it.

The host waits for a device whenever it copies from ordinary memory or reads a value, so a round does each once. On a CPU
nothing is copied and nothing waits. Knows arrays and tensors; knows no sequence, no model and no rule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

Array = Any
"""A numpy array (int64 or float64) on the host, a Tensor once uploaded; anything else stays as it is."""


def upload(device: torch.device, stages: list[Any]) -> None:
    """Make tensors on a device of all numpy arrays among the attributes of some objects, and of named tuples in them, in one transfer."""
    convert: Callable[[np.ndarray], Tensor] = torch.from_numpy
    if device.type != "cpu":
        arrays: list[np.ndarray] = []
        for stage in stages:
            for value in vars(stage).values():
                _map(value, arrays.append)
        if not arrays:
            return
        packed = torch.from_numpy(np.concatenate([array.reshape(-1).view(np.int64) for array in arrays]))
        packed = packed.pin_memory() if device.type == "cuda" else packed
        parts = iter(packed.to(device, non_blocking=True).split([array.size for array in arrays]))

        def convert(array: np.ndarray) -> Tensor:
            part = next(parts).view(array.shape)
            return part.view(torch.float64) if array.dtype == np.float64 else part

    for stage in stages:
        for name, value in vars(stage).items():
            setattr(stage, name, _map(value, convert))


def _map(value: Any, function: Callable[[np.ndarray], Any]) -> Any:
    """The result of `function` for a numpy array; a named tuple of results for one of arrays."""
    if isinstance(value, np.ndarray):
        return function(value)
    if hasattr(value, "_fields"):
        return type(value)(*[_map(each, function) for each in value])
    return value


def download(tensors: dict[Any, Tensor]) -> dict[Any, Any]:
    """Tensors of one device as nested lists, in one transfer: a round's only wait for the device.

    All travel as float64, which holds token ids and float32 exactly.
    """
    if all(each.is_cpu for each in tensors.values()):
        return {key: each.numpy().tolist() for key, each in tensors.items()}
    packed = torch.cat([tensor.double().flatten() for tensor in tensors.values()]).cpu()
    parts = packed.split([tensor.numel() for tensor in tensors.values()])
    return {
        key: part.view(tensor.shape).tolist()
        for (key, tensor), part in zip(tensors.items(), parts, strict=True)
    }
