"""Block verification (Sun et al., ICLR 2025, arXiv 2403.10444, algorithm 2): how many draft tokens it would keep.

Its decision depends on the whole block, so the text would depend on the draft length (against law 2). SpecViz only shows what it would
have kept in lossless decoding. Pure functions on tensors; knows no model and no round.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specviz.core.sampling import at


def kept(q: Tensor, p: Tensor, tokens: Tensor, uniforms: Tensor) -> Tensor:
    """The number [...] of draft tokens that are kept: the length of the longest prefix whose uniform is below its acceptance probability.

    Args:
        q, p: both models' distributions along the block, [..., K, V].
        tokens: the draft tokens, [..., K].
        uniforms: one per draft token, [..., K].
    """
    passed = uniforms < acceptance(q, p, tokens)
    return (passed * torch.arange(1, 1 + tokens.shape[-1], device=tokens.device)).amax(-1)


def acceptance(q: Tensor, p: Tensor, tokens: Tensor) -> Tensor:
    """Acceptance probability [..., K] of each prefix of the block: the paper's h. Arguments as in `kept`."""
    weights = prefix_weights(q, p, tokens)
    mass = residuals(weights, q, p).sum(-1)
    whole = mass + 1 - weights[..., :-1]
    # 0/0 where p is q and the weight 1: the next draft token is surely accepted, and so is this prefix.
    inner = torch.where(whole > 0, mass / whole, 1.0)
    return torch.cat([inner[..., 1:], weights[..., -1:]], -1)


def residuals(weights: Tensor, q: Tensor, p: Tensor) -> Tensor:
    """Unnormalised residuals [..., K, V], given `prefix_weights`. If i < K tokens are kept, the next token is drawn from residual i."""
    return (weights[..., :-1, None] * p).sub_(q).clamp_min_(0)


def prefix_weights(q: Tensor, p: Tensor, tokens: Tensor) -> Tensor:
    """The paper's p of each prefix of the block, [..., K + 1]: first 1, then the previous value times the token's p/q, at most 1."""
    ratios = (at(p, tokens) / at(q, tokens)).unbind(-1)
    found = [torch.ones_like(ratios[0])]
    for ratio in ratios:
        found.append((found[-1] * ratio).clamp_max(1))
    return torch.stack(found, -1)
