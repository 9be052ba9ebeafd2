"""Residuals that depend on the rejected token, all together. Pure functions on tensors; knows no method."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Residuals:
    """The residuals max(0, share(x)·p - q) of a method whose residual depends on the rejected token x, all together.

    Two tokens of the same share have the same residual, so shares are gone through in order: a token v has part in the residuals
    of all shares above q(v)/p(v), and with the sums over those its mass is p(v)·Σ share·rate - q(v)·Σ rate, where rate is how
    often that share is met over the mass of its residual.

    Attributes:
        shares: in order, float64 [..., n].
        weighted, rates: sums of share·rate and of rate from each share on, and 0: float64 [..., n + 1].
    """

    shares: Tensor
    weighted: Tensor
    rates: Tensor

    @staticmethod
    def of(q: Tensor, p: Tensor, rejected: Tensor, shares: Tensor) -> Residuals:
        """From q, p, how often each token is drafted and rejected, and its share, above 0: [..., V] each."""
        if rejected.device.type == "cpu":  # most tokens are not; to find them on a GPU the host would wait
            met = rejected.reshape(-1, rejected.shape[-1]).any(0).nonzero()[:, 0]
            rejected, shares = rejected[..., met], shares[..., met]
        shares, order = shares.double().sort(-1)
        rejected = rejected.double().gather(-1, order)
        first = _first_above(shares, q, p)
        zero = shares.new_zeros(*shares.shape[:-1], shares.shape[-1] + 1)
        # q and p of the tokens that have part in each share's residual.
        below_q, below_p = (
            zero.scatter_add(-1, first, each.double()).cumsum(-1)[..., :-1] for each in (q, p)
        )
        mass = shares * below_p - below_q
        rate = torch.where((rejected > 0) & (mass > 0), rejected / mass, 0.0)
        return Residuals(shares, *(_sums_from(each) for each in (shares * rate, rate)))

    def emitted(self, q: Tensor, p: Tensor) -> Tensor:
        """What all of them together emit at tokens of these probabilities [..., m]."""
        first = _first_above(self.shares, q, p)
        drawn = p * self.weighted.gather(-1, first) - q * self.rates.gather(-1, first)
        return drawn.clamp_min_(0).to(q.dtype)


def _first_above(shares: Tensor, q: Tensor, p: Tensor) -> Tensor:
    """Index [..., m] of the first share above q/p."""
    bound = torch.where(p > 0, q.double() / p.double(), torch.inf)
    return torch.searchsorted(shares, bound, right=True)


def _sums_from(values: Tensor) -> Tensor:
    """Sums of `values` [..., n] from each on, and 0: [..., n + 1]."""
    return torch.nn.functional.pad(values.flip(-1).cumsum(-1).flip(-1), (0, 1))
