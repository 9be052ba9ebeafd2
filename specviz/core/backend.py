"""A backend: the passes over a vocabulary that decoding needs: softmax, draws, largest values, and sums over a mask.

`Backend` defines them in torch, on any device and in any precision; `compiled` does the same faster in float32 on a CPU. A pair's
backend is chosen when the pair is loaded. Every row's result depends on that row alone (laws 2 and 3). Knows no method and no model.
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
        return torch.softmax(logits if temperature == 1 else logits / temperature, dim=-1)

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
        return found.clamp_max(
            weights.shape[-1] - 1
        )  # only NaN gets that far; it is reported after the round

    def draw_residual(
        self,
        q: Tensor,
        p: Tensor,
        score: Tensor,
        threshold: Tensor,
        share: Tensor,
        uniform: Tensor,
        step: Tensor | None = None,
    ) -> Tensor:
        """Draws [...] from the residual max(0, m - q), or from m if the residual has no mass, which only rounding can cause.

        m = q · 1[score ≥ threshold] + share · p.

        Args:
            q, p, score: [..., V].
            threshold, share: [..., 1].
            uniform: float64 [...].
            step: if rows are [B, K, V], the one step [B] at which each sequence draws; uniforms are then [B].
        """
        if step is not None:
            rows = torch.arange(len(step), device=step.device)
            q, p, score, threshold, share = (each[rows, step] for each in (q, p, score, threshold, share))
        weights = mixture(q, p, score, threshold, share)
        residual = (weights - q).clamp_min_(0)
        return self.draw(residual + weights * (total(residual) <= 0), uniform)

    # ---- largest, leading

    def largest(self, values: Tensor) -> Tensor:
        """The largest value of each row, [..., 1]."""
        return values.amax(-1, keepdim=True)

    def nearest(self, values: Tensor, limit: Tensor) -> Tensor:
        """The largest value of each row below a limit [..., 1], and the smallest that is not below it: [..., 2]; -inf and inf for none."""
        below = values < limit
        largest = torch.where(below, values, -torch.inf).amax(-1)
        return torch.stack((largest, torch.where(below, torch.inf, values).amin(-1)), -1)

    def leading(self, values: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """The `count` largest positive values of each row, descending, and their tokens: [..., count] each.

        If fewer are positive, the rest are 0, with arbitrary tokens.
        """
        top = values.topk(count, dim=-1)
        return top.values, top.indices

    # ---- sum over a mask

    def mass_below(self, score: Tensor, threshold: Tensor, weights: Tensor) -> Tensor:
        """The weight of tokens whose score is below a threshold [..., 1]: [..., 1]; exactly 0 where no token is."""
        return total(indicator(torch.lt, score, threshold) * weights)

    def excess(self, left: Tensor, right: Tensor) -> Tensor:
        """The sum of max(0, left - right): [..., 1]."""
        return total((left - right).clamp_min_(0))

    def crossing(self, score: Tensor, weights: Tensor, share: Tensor, own: Tensor) -> Tensor:
        """The inverse of `mass_below`: the smallest score above `own` such that the weights of all scores up to it exceed `share`.

        Args:
            score, weights: [..., V], not negative.
            share, own: [...].

        Returns:
            float64 [...]; −inf where the weights of scores up to `own` already exceed it, inf where all weights together do not.
        """
        order = score.sort(-1)
        mass = weights.gather(-1, order.indices).double().cumsum(-1)
        index = torch.searchsorted(mass, share.double().unsqueeze(-1), right=True)
        found = order.values.gather(-1, index.clamp_max(mass.shape[-1] - 1)).double().squeeze(-1)
        found = torch.where(found > own, found, -torch.inf)
        return torch.where(index.squeeze(-1) < mass.shape[-1], found, torch.inf)


TORCH = Backend()
"""The definition, which serves every device and precision."""


def mixture(q: Tensor, p: Tensor, score: Tensor, threshold: Tensor, share: Tensor) -> Tensor:
    """q · 1[score ≥ threshold] + share · p: [..., V], or [..., m] for some tokens."""
    trusted = indicator(torch.ge, score, threshold)
    kept = (
        trusted.mul_(q) if trusted.shape == q.shape else trusted * q
    )  # in place: fresh memory costs as much as a pass
    return kept.add_(p * share)


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
    return torch.zeros_like(logits).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)


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
