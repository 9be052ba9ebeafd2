"""The backend for float32 on a CPU: compiled loops that read tensors in place.

The only module that turns tensors into addresses. Each operation checks the device, dtype and strides of its arguments, and keeps them
alive while a loop reads them. numba is imported on the first call of `compiled_backend`. Knows no decoding method and no model.
"""

from __future__ import annotations

import logging
from functools import cache, lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specviz.core.backend import TORCH, Backend

log = logging.getLogger(__name__)


@cache
def compiled_backend() -> Backend | None:
    """The compiled backend; None where numba is missing, broken or disabled. The first call compiles or loads the loops."""
    try:
        import numba

        if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
            return None
        from specviz.core import loops
    except Exception as error:
        log.warning("numba cannot be used (%s): rounds take a millisecond or two more on a CPU", error)
        return None
    return CompiledBackend(loops)


def backend_for(device: torch.device, *dtypes: torch.dtype) -> Backend:
    """The backend for models on a device whose logits have these dtypes; half precision is computed in float32."""
    if device.type != "cpu" or torch.float64 in dtypes:
        return TORCH
    return compiled_backend() or TORCH


class CompiledBackend(Backend):
    """`Backend` for float32 rows on a CPU, equal up to rounding: sums are in float64, those of softmax first in float32 lanes."""

    def __init__(self, loops: Any) -> None:
        """`loops` is the module of that name."""
        self._loops = loops

    def softmax(self, logits: Tensor, temperature: float | Tensor, out: Tensor | None = None) -> Tensor:
        """See `Backend.softmax`."""
        if out is None or not out.is_contiguous():
            out = torch.empty(logits.shape)
        if out.dtype is not torch.float32 or out.shape != logits.shape:
            raise ValueError(
                f"float32 {tuple(logits.shape)} is to be written, not {out.dtype} {tuple(out.shape)}"
            )
        rows, temperatures = _rows(logits), _numbers(temperature, logits.shape[:-1], np.float64)
        self._loops.softmax(rows, temperatures, out.numpy().reshape(len(rows), -1))
        return out

    def draw(self, weights: Tensor, uniform: Tensor) -> Tensor:
        """See `Backend.draw`."""
        tokens = np.empty(weights.shape[:-1], np.int64)
        coins = _numbers(uniform, tokens.shape, np.float64)
        self._loops.draw(_rows(weights), weights.shape[-1], coins, tokens.reshape(-1))
        return torch.from_numpy(tokens)

    def leading(self, values: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """See `Backend.leading`; equal values are in the order of their tokens."""
        rows, shape = _rows(values), (*values.shape[:-1], count)
        most, tokens = np.empty(shape, np.float32), np.empty(shape, np.int64)
        self._loops.leading(rows, values.shape[-1], most.reshape(-1, count), tokens.reshape(-1, count))
        return torch.from_numpy(most), torch.from_numpy(tokens)

    def total(self, values: Tensor) -> Tensor:
        """See `Backend.total`."""
        out = np.empty((*values.shape[:-1], 1), np.float32)
        self._loops.total(_rows(values), values.shape[-1], out.reshape(-1))
        return torch.from_numpy(out)


def _rows(values: Tensor) -> np.ndarray:
    """Addresses [n] of the rows of `values` [..., V], strided or not; valid while `values` lives.

    Raises:
        TypeError: they are not float32 on a CPU.
        ValueError: the numbers of a row are not contiguous.
    """
    if values.dtype is not torch.float32 or not values.is_cpu:
        raise TypeError(f"compiled loops read float32 on a CPU, not {values.dtype} on {values.device}")
    *lead, size = values.shape
    if size != 1 and values.stride(-1) != 1:
        raise ValueError(f"the numbers of a row lie {values.stride(-1)} apart: make the tensor contiguous")
    return values.data_ptr() + _offsets(tuple(lead), values.stride()[:-1])


@lru_cache
def _offsets(lead: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """Byte offset of each row from the first one, [n]."""
    axes = zip(np.indices(lead), strides, strict=True)
    return sum((index * (4 * stride) for index, stride in axes), np.zeros(lead, np.int64)).reshape(-1)


def _numbers(
    setting: float | Tensor, lead: tuple[int, ...], dtype: type[np.floating] = np.float32
) -> np.ndarray:
    """A number, or a tensor that broadcasts to [*lead], as one number per row: [n]."""
    each: np.ndarray = np.empty(lead, dtype)
    each[...] = setting.numpy() if isinstance(setting, Tensor) else setting
    return each.reshape(-1)
