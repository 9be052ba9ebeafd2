"""The backend for float32 on a CPU: compiled loops.

numba is imported on the first call of `compiled_backend`. Knows no decoding method and no model.
"""

from __future__ import annotations

import logging
from functools import cache
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
    """`Backend` for float32 on a CPU, equal up to rounding: sums are in float64, those of softmax first in float32 lanes.

    TypeError where tensors are not float32 or not on a CPU.
    """

    def __init__(self, loops: Any) -> None:
        """`loops` is the module of that name."""
        self._loops = loops

    def softmax(self, logits: Tensor, temperature: float | Tensor, out: Tensor | None = None) -> Tensor:
        """See `Backend.softmax`."""
        if out is None or not out.is_contiguous():
            out = torch.empty(logits.shape)
        self._loops.softmax(_rows(logits), _numbers(temperature, logits.shape[:-1]), _rows(out))
        return out

    def draw(self, weights: Tensor, uniform: Tensor) -> Tensor:
        """See `Backend.draw`."""
        tokens = np.empty(weights.shape[:-1], np.int64)
        self._loops.draw(_rows(weights), _numbers(uniform, tokens.shape), tokens.reshape(-1))
        return torch.from_numpy(tokens)

    def draw_residual(self, weights: Tensor, q: Tensor, uniform: Tensor) -> Tensor:
        """See `Backend.draw_residual`."""
        tokens = np.empty(weights.shape[:-1], np.int64)
        uniforms = _numbers(uniform, tokens.shape)
        self._loops.draw_residual(_rows(weights), _rows(q), uniforms, tokens.reshape(-1))
        return torch.from_numpy(tokens)

    def leading(self, values: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """See `Backend.leading`; equal values are in the order of their tokens."""
        shape = (*values.shape[:-1], count)
        most, tokens = np.empty(shape, np.float32), np.empty(shape, np.int64)
        self._loops.leading(_rows(values), most.reshape(-1, count), tokens.reshape(-1, count))
        return torch.from_numpy(most), torch.from_numpy(tokens)

    def total(self, values: Tensor) -> Tensor:
        """See `Backend.total`."""
        out = np.empty((*values.shape[:-1], 1), np.float32)
        self._loops.total(_rows(values), out.reshape(-1))
        return torch.from_numpy(out)

    def mass_below(self, score: Tensor, threshold: Tensor, weights: Tensor) -> Tensor:
        """See `Backend.mass_below`."""
        out = np.empty(threshold.shape, np.float32)
        limits = _numbers(threshold, threshold.shape)
        self._loops.mass_below(_rows(score), limits, _rows(weights), out.reshape(-1))
        return torch.from_numpy(out)


def _rows(values: Tensor) -> np.ndarray:
    """The rows [n, V] of `values` [..., V], without a copy if they are contiguous."""
    return np.ascontiguousarray(values.numpy().reshape(-1, values.shape[-1]))


def _numbers(setting: float | Tensor, lead: tuple[int, ...]) -> np.ndarray:
    """A number, or a tensor that broadcasts to [*lead], as one number per row: float64 [n]."""
    each = np.empty(lead)
    each[...] = setting.numpy() if isinstance(setting, Tensor) else setting
    return each.reshape(-1)
