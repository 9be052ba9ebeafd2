"""Backends: the operations over the vocabulary that decoding needs (softmax, draws, largest values, sums).

`Backend` defines them in torch, on any device and in any precision; `CompiledBackend` does the same faster in float32 on a CPU. Every
row's result depends on that row alone (laws 2 and 3). numba is imported on the first call of `compiled_backend`. Knows no method and
no model.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

log = logging.getLogger(__name__)

_BLOCK = 512
"""Block size of the two-level cumulative sum used to draw a token on a GPU."""


class Backend:
    """The operations in torch. Each works on rows of V values, one for each token of the vocabulary."""

    def softmax(self, logits: Tensor, temperature: float | Tensor, out: Tensor | None = None) -> Tensor:
        """Probabilities of `logits` [..., V] at `temperature`, a number or [...]; one-hot at the first argmax where the temperature is 0.

        A backend may write the result to `out` [..., V] and return `out`.
        """
        if isinstance(temperature, Tensor):
            temperature = temperature.to(logits.dtype).unsqueeze(-1)
            scaled = torch.softmax(logits / torch.where(temperature > 0, temperature, 1.0), dim=-1)
            return torch.where(temperature > 0, scaled, _one_hot_argmax(logits))
        if temperature == 0:
            return _one_hot_argmax(logits)
        # A GPU multiplies by the reciprocal of a plain number, which rounds unlike division by a row's own (law 3).
        divisor = torch.full((), temperature, dtype=logits.dtype, device=logits.device)
        return torch.softmax(logits / divisor, dim=-1)

    def draw(self, weights: Tensor, uniform: Tensor) -> Tensor:
        """Inverse-CDF draws [...], int64: the first token whose cumulative weight exceeds `uniform` times the total weight.

        Args:
            weights: [..., V], not negative.
            uniform: float64 [...], in [0, 1).
        """
        if weights.is_cuda and weights.shape[-1] > _BLOCK:
            return draw_in_two_steps(weights, uniform)
        cumulative = weights.double().cumsum(-1)
        found = _first_beyond(cumulative, uniform.double().unsqueeze(-1) * cumulative[..., -1:]).squeeze(-1)
        # Only NaN gets beyond the last token; it is reported after the round.
        return found.clamp_max(weights.shape[-1] - 1)

    def draw_residual(self, weights: Tensor, q: Tensor, uniform: Tensor) -> Tensor:
        """As `draw`, from the residual max(0, weights - q); from `weights` where the residual is 0, which only rounding can cause."""
        residual = (weights - q).clamp_min_(0)
        return self.draw(residual + weights * (total(residual) <= 0), uniform)

    def leading(self, values: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """The `count` largest values of each row, descending, and their tokens: [..., count] each.

        `values` [..., V] must not be negative. The tokens of zeros are arbitrary.
        """
        top = values.topk(count, dim=-1)
        return top.values, top.indices

    def mass_below(self, score: Tensor, threshold: Tensor, weights: Tensor) -> Tensor:
        """Total weight [..., 1] of the tokens whose score is below `threshold` [..., 1]; exactly 0 where there are no such tokens."""
        return total(indicator(torch.lt, score, threshold) * weights)

    def excess(self, left: Tensor, right: Tensor) -> Tensor:
        """Sum [..., 1] of max(0, left - right) over the vocabulary."""
        return total((left - right).clamp_min_(0))


TORCH = Backend()
"""The torch backend, which serves every device and precision."""


def mixture(q: Tensor, p: Tensor, score: Tensor, threshold: Tensor, share: Tensor) -> Tensor:
    """q · 1[score ≥ threshold] + share · p for all tokens [..., V], or for some [..., m]."""
    return (indicator(torch.ge, score, threshold) * q).add_(p * share)


def total(values: Tensor) -> Tensor:
    """Batch-invariant sum of `values` [..., V] over the vocabulary: [..., 1]."""
    if values.shape[:-1].numel() == 1:
        # torch splits a single sum among threads and so changes its order; with two sums each thread takes one.
        return values.expand(2, *values.shape).sum(-1, keepdim=True)[0]
    return values.sum(-1, keepdim=True)


def indicator(comparison: Callable[..., Tensor], left: Tensor, right: Tensor) -> Tensor:
    """1 where the comparison holds, else 0, in the dtype of `left`. Multiplying by booleans is several times slower."""
    return comparison(left, right, out=left.new_empty(0))


def _one_hot_argmax(logits: Tensor) -> Tensor:
    """One-hot at the first argmax of each row; NaN in the whole row if one of its logits is NaN or +inf, as in softmax."""
    most = logits.max(-1, keepdim=True)
    one_hot = torch.zeros_like(logits).scatter_(-1, most.indices, 1.0)
    return one_hot.masked_fill_(~(most.values < torch.inf), torch.nan)


def _first_beyond(cumulative: Tensor, threshold: Tensor) -> Tensor:
    """Index [..., 1] of the first value in `cumulative` [..., n] that exceeds `threshold` [..., 1]; n where no value does."""
    whole = cumulative[..., -1:]
    # Rounding must not raise the threshold to the total, which no cumulative weight exceeds.
    threshold = torch.minimum(threshold, torch.nextafter(whole, torch.zeros_like(whole)))
    return torch.searchsorted(cumulative, threshold, right=True)


def draw_in_two_steps(weights: Tensor, uniform: Tensor) -> Tensor:
    """`Backend.draw` that first finds the block that holds the token. A GPU sums blocks in parallel, but a whole row serially."""
    size = weights.shape[-1]
    blocks = torch.constant_pad_nd(weights, (0, -size % _BLOCK)).unflatten(-1, (-1, _BLOCK))
    sums = blocks.sum(-1, dtype=torch.float64).cumsum(-1)
    threshold = uniform.double().unsqueeze(-1) * sums[..., -1:]
    block = _first_beyond(sums, threshold).clamp_max(blocks.shape[-2] - 1)
    before = torch.where(block > 0, sums.gather(-1, (block - 1).clamp_min(0)), 0.0)
    index = block.unsqueeze(-1).expand(*block.shape, _BLOCK)
    inside = blocks.gather(-2, index).squeeze(-2).double().cumsum(-1)
    found = block * _BLOCK + _first_beyond(inside, threshold - before)
    return found.squeeze(-1).clamp_max(size - 1)


# ---- compiled


@cache
def compiled_backend() -> Backend | None:
    """The compiled backend; None and a log warning if numba is missing, broken or disabled. The first call compiles or loads the loops."""
    try:
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
    """`Backend` for float32 on a CPU, equal to `TORCH` up to rounding. Sums are in float64; softmax first makes float32 partial sums.

    Its methods raise TypeError if a tensor is not float32 or not on a CPU.
    """

    def __init__(self, loops: Any) -> None:
        """`loops` is the module `specviz.core.loops`."""
        self._loops = loops

    def softmax(self, logits: Tensor, temperature: float | Tensor, out: Tensor | None = None) -> Tensor:
        """See `Backend.softmax`."""
        if out is None or not out.is_contiguous():
            out = torch.empty(logits.shape)
        self._loops.softmax(_rows(logits), _numbers(temperature, logits.shape[:-1]), _rows(out))
        return out

    def draw(self, weights: Tensor, uniform: Tensor) -> Tensor:
        """See `Backend.draw`."""
        return _drawn(self._loops.draw, uniform, weights)

    def draw_residual(self, weights: Tensor, q: Tensor, uniform: Tensor) -> Tensor:
        """See `Backend.draw_residual`."""
        return _drawn(self._loops.draw_residual, uniform, weights, q)

    def leading(self, values: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """See `Backend.leading`; equal values are in the order of their tokens."""
        shape = (*values.shape[:-1], count)
        most, tokens = np.empty(shape, np.float32), np.empty(shape, np.int64)
        self._loops.leading(_rows(values), most.reshape(-1, count), tokens.reshape(-1, count))
        return torch.from_numpy(most), torch.from_numpy(tokens)

    def excess(self, left: Tensor, right: Tensor) -> Tensor:
        """See `Backend.excess`."""
        rest = (left - right).clamp_min_(0)
        out = np.empty((*rest.shape[:-1], 1), np.float32)
        self._loops.total(_rows(rest), out.reshape(-1))
        return torch.from_numpy(out)

    def mass_below(self, score: Tensor, threshold: Tensor, weights: Tensor) -> Tensor:
        """See `Backend.mass_below`."""
        out = np.empty(threshold.shape, np.float32)
        limits = _numbers(threshold, threshold.shape)
        self._loops.mass_below(_rows(score), limits, _rows(weights), out.reshape(-1))
        return torch.from_numpy(out)


def _drawn(loop: Any, uniform: Tensor, *weights: Tensor) -> Tensor:
    tokens = np.empty(weights[0].shape[:-1], np.int64)
    loop(*map(_rows, weights), _numbers(uniform, tokens.shape), tokens.reshape(-1))
    return torch.from_numpy(tokens)


def _rows(values: Tensor) -> np.ndarray:
    """The rows [n, V] of `values` [..., V], without a copy if they are contiguous."""
    return np.ascontiguousarray(values.numpy().reshape(-1, values.shape[-1]))


def _numbers(setting: float | Tensor, lead: tuple[int, ...]) -> np.ndarray:
    """A setting (a number, or a tensor that broadcasts to the shape `lead`) as one number per row: float64 [n]."""
    each = np.empty(lead)
    each[...] = setting.numpy() if isinstance(setting, Tensor) else setting
    return each.reshape(-1)
