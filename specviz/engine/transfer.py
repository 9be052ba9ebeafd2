"""One upload before a round and one download after it.

The host waits for a device whenever it copies from ordinary memory or reads a value, so a round does each once. On a CPU
nothing is copied and nothing waits. Knows arrays and tensors; knows no sequence, no model and no rule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

Inputs = TypeVar("Inputs")
Array = Any
"""A field of a round's inputs: a numpy array (int64 or float64) on the host, a Tensor once uploaded."""


def upload(device: torch.device, inputs: Inputs) -> Inputs:
    """Some dataclasses, lists and tuples with every numpy array in them on a device, in one transfer.

    Args:
        inputs: nested dataclasses, lists and named tuples; arrays are int64 or float64, anything else stays as it is.
            Dataclasses and lists are changed in place.
    """
    if device.type == "cpu":
        shared: Inputs = _map(inputs, torch.from_numpy)
        return shared
    arrays: list[np.ndarray] = []

    def find(array: np.ndarray) -> np.ndarray:
        arrays.append(array)
        return array

    _map(inputs, find)
    if not arrays:
        return inputs
    packed = torch.from_numpy(np.concatenate([array.reshape(-1).view(np.int64) for array in arrays]))
    packed = packed.pin_memory() if device.type == "cuda" else packed
    parts = iter(packed.to(device, non_blocking=True).split([array.size for array in arrays]))

    def tensor(array: np.ndarray) -> Tensor:
        part = next(parts).view(array.shape)
        return part.view(torch.float64) if array.dtype == np.float64 else part

    uploaded: Inputs = _map(inputs, tensor)
    return uploaded


def _map(value: Any, function: Callable[[np.ndarray], Any]) -> Any:
    """`value` with `function` applied to each numpy array in it; dataclasses and lists in place."""
    kind = type(value)
    if kind is np.ndarray:
        return function(value)
    if kind is list:
        value[:] = [_map(each, function) for each in value]
    elif hasattr(kind, "_fields"):
        return kind(*[_map(each, function) for each in value])
    elif hasattr(kind, "__uploads__"):
        fields = vars(value)
        for name, each in fields.items():
            if type(each) not in _PLAIN:
                fields[name] = _map(each, function)
    return value


_PLAIN = {tuple, float, int, bool, type(None)}
"""Types that hold no array."""


def download(tensors: dict[Any, Any]) -> dict[Any, Any]:
    """Tensors of one device, or arrays among a CPU's, as nested lists, by the same keys, in one transfer: a round's only wait for the
    device.

    All travel as float64, which holds token ids and float32 exactly.
    """
    arrays = {
        key: each.numpy() if isinstance(each, Tensor) and each.is_cpu else each
        for key, each in tensors.items()
    }
    if all(isinstance(each, np.ndarray) for each in arrays.values()):
        return {key: each.tolist() for key, each in arrays.items()}
    packed = torch.cat([tensor.double().flatten() for tensor in tensors.values()]).cpu()
    parts = packed.split([tensor.numel() for tensor in tensors.values()])
    return {
        key: part.view(tensor.shape).tolist()
        for (key, tensor), part in zip(tensors.items(), parts, strict=True)
    }
