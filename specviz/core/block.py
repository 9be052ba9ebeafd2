"""Block verification: how many tokens of a drafted block it would have kept (Sun et al., ICLR 2025, arXiv 2403.10444, algorithm 2).

It needs the whole block before it decides, so a text would depend on the draft length; SpecViz shows it only as a what-if of lossless
decoding. Pure functions on tensors; knows no model and no round.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specviz.core.sampling import at


def kept(q: Tensor, p: Tensor, tokens: Tensor, coins: Tensor) -> Tensor:
    """The number [...] of draft tokens that are kept: all up to the last one whose coin is below its chance.

    Args:
        q, p: both models' distributions along the block, [..., K, V].
        tokens: the draft tokens, [..., K].
        coins: their uniforms, [..., K].
    """
    passed = coins < chances(q, p, tokens)
    return (passed * torch.arange(1, 1 + tokens.shape[-1], device=tokens.device)).amax(-1)


def chances(q: Tensor, p: Tensor, tokens: Tensor) -> Tensor:
    """The chance [..., K] of each beginning of the block: the paper's h. Arguments as in `kept`."""
    weights, mass = _weights(q, p, tokens), leftovers(q, p, tokens).sum(-1)
    whole = mass + 1 - weights[..., :-1]
    # Where p is q nothing is left over: the next token is kept for certain, and this one with it.
    inner = torch.where(whole > 0, mass / whole, 1.0)
    return torch.cat([inner[..., 1:], weights[..., -1:]], -1)


def leftovers(q: Tensor, p: Tensor, tokens: Tensor) -> Tensor:
    """What follows where 0, 1, … K − 1 tokens are kept, to be normalised: [..., K, V]. Arguments as in `kept`."""
    return (_weights(q, p, tokens)[..., :-1, None] * p).sub_(q).clamp_min_(0)


def _weights(q: Tensor, p: Tensor, tokens: Tensor) -> Tensor:
    """How much more probable the verifier finds each beginning of the block than the drafter, at most 1: [..., K + 1], from 1 on."""
    ratios = (at(p, tokens) / at(q, tokens)).unbind(-1)
    found = [torch.ones_like(ratios[0])]
    for ratio in ratios:
        found.append((found[-1] * ratio).clamp_max(1))
    return torch.stack(found, -1)
