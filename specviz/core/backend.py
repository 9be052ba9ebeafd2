"""A backend: the operations over the vocabulary that decoding needs: softmax, draws, largest values and sums.

`Backend` defines them in torch, on any device and in any precision; `compiled` does the same faster in float32 on a CPU. A pair's
backend is chosen when it is first used. Every row's result depends on that row alone (laws 2 and 3). Knows no method and no model.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

_BLOCK = 512
"""Block size of the two-level cumulative sum used to draw a token on a GPU."""


class Backend:
    """Passes over rows of a vocabulary, [..., V] each, in torch."""

    # ---- softmax

    def softmax(self, logits: Tensor, temperature: float | Tensor, out: Tensor | None = None) -> Tensor:
        """Probabilities of logits at a temperature, a number or [...]; one-hot at the first argmax where that is 0.

        A backend may write the result to `out` [..., V] and return that.
        """
        if isinstance(temperature, Tensor):
            temperature = temperature.to(logits.dtype).unsqueeze(-1)
            scaled = torch.softmax(logits / torch.where(temperature > 0, temperature, 1.0), dim=-1)
            return torch.where(temperature > 0, scaled, _one_hot_argmax(logits))
        if temperature == 0:
            return _one_hot_argmax(logits)
        if temperature == 1:
            return torch.softmax(logits, dim=-1)
        # A GPU multiplies by the reciprocal of a plain number, which rounds unlike division by a row's own (law 3).
        divisor = torch.full((), temperature, dtype=logits.dtype, device=logits.device)
        return torch.softmax(logits / divisor, dim=-1)

    # ---- draw

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
        """As `draw`, from max(0, weights - q), or from `weights` where that has no mass, which only rounding can cause."""
        residual = (weights - q).clamp_min_(0)
        return self.draw(residual + weights * (total(residual) <= 0), uniform)

    # ---- the largest values

    def leading(self, values: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """The `count` largest positive values of each row, descending, and their tokens: [..., count] each.

        If fewer are positive, the rest are 0, with arbitrary tokens.
        """
        top = values.topk(count, dim=-1)
        return top.values, top.indices

    # ---- sums

    def total(self, values: Tensor) -> Tensor:
        """The sum of each row, [..., 1]."""
        return total(values)

    def mass_below(self, score: Tensor, threshold: Tensor, weights: Tensor) -> Tensor:
        """The weight of tokens whose score is below a threshold [..., 1]: [..., 1]; exactly 0 where no token is."""
        return total(indicator(torch.lt, score, threshold) * weights)

    def excess(self, left: Tensor, right: Tensor) -> Tensor:
        """The sum of max(0, left - right): [..., 1]."""
        return self.total((left - right).clamp_min_(0))


TORCH = Backend()
"""The definition, which serves every device and precision."""


def mixture(q: Tensor, p: Tensor, score: Tensor, threshold: Tensor, share: Tensor) -> Tensor:
    """q · 1[score ≥ threshold] + share · p: [..., V], or [..., m] for some tokens."""
    return (indicator(torch.ge, score, threshold) * q).add_(p * share)


def total(values: Tensor) -> Tensor:
    """Batch-invariant sum of `values` [..., V] over the vocabulary: [..., 1]."""
    if values.shape[:-1].numel() == 1:
        # torch splits a single sum among threads and so changes its order; with two sums each thread takes one.
        return values.expand(2, *values.shape).sum(-1, keepdim=True)[0]
    return values.sum(-1, keepdim=True)


def indicator(comparison: Callable[..., Tensor], left: Tensor, right: Tensor) -> Tensor:
    """1 where the comparison holds, else 0, in the dtype of `left`: several times faster to multiply by than booleans."""
    return comparison(left, right, out=left.new_empty(0))


def _one_hot_argmax(logits: Tensor) -> Tensor:
    """NaN everywhere if a logit is NaN or +inf, as softmax has it."""
    most = logits.max(-1, keepdim=True)
    one_hot = torch.zeros_like(logits).scatter_(-1, most.indices, 1.0)
    return one_hot.masked_fill_(~(most.values < torch.inf), torch.nan)


def _first_beyond(cumulative: Tensor, threshold: Tensor) -> Tensor:
    """Index [..., 1] of the first of `cumulative` [..., n] that exceeds `threshold` [..., 1]."""
    whole = cumulative[..., -1:]
    # Rounding must not raise the threshold to the total, which no cumulative weight exceeds.
    threshold = torch.minimum(threshold, torch.nextafter(whole, torch.zeros_like(whole)))
    return torch.searchsorted(cumulative, threshold, right=True)


def draw_in_two_steps(weights: Tensor, uniform: Tensor) -> Tensor:
    """`Backend.draw` that finds the block of the token first: a GPU sums blocks in parallel, but a whole row serially."""
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
