"""Drafter-invariant coupling: both models draw with the same noise at a position (Daliri, Musco, Suresh, arXiv 2408.07978).

A draw from weights w is the token with the least E/w, where the E are independent exponentials (the Gumbel-max trick).
The verifier's draw depends on the noise and p alone, so the text does not depend on the drafter.

Both draws have an exact joint distribution. Let r = q/p, h(u) = Σ max(q, u·p), and F(u) the integral of 1/h² from 0 to u. If the drafter
draws v, the verifier also draws v with probability 1/h(r(v)). The pair (v, w), w ≠ v, has probability q(v)·p(w)·max(0, F(r(v)) − F(r(w))).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from specviz.core.sampling import at

_TINY = torch.finfo(torch.float64).tiny


def noise(uniforms: np.ndarray, size: int) -> np.ndarray:
    """Exponentials [..., size], float64, above 0. The noise of a position depends only on its uniform in `uniforms` [...]."""
    rows = [np.random.Generator(np.random.PCG64(int(each * 2**53))) for each in uniforms.flat]
    drawn = np.array([row.standard_exponential(size) for row in rows])
    return np.maximum(drawn, _TINY).reshape(*uniforms.shape, size)


def draw(weights: Tensor, exponentials: Tensor) -> Tensor:
    """Tokens [...] drawn from `weights` [..., V] with each position's noise, `exponentials` [..., V]: argmax of weight / exponential."""
    return (weights.double() / exponentials).argmax(-1)


class Coupling:
    """Joint distribution of a draw from q [..., V] and a draw from p [..., V] with the same noise."""

    def __init__(self, q: Tensor, p: Tensor) -> None:
        self._q, self._p = q.double(), p.double()
        self._ratio = torch.where(self._p > 0, self._q / self._p.clamp_min(_TINY), torch.inf)

    def acceptance(self, tokens: Tensor) -> Tensor:
        """Probability [...] that the draw from p is `tokens` [...], given that the draw from q is `tokens`."""
        ratio = at(self._ratio, tokens)
        h = torch.maximum(self._q, self._p * ratio.unsqueeze(-1)).sum(-1)
        return torch.where(ratio.isinf(), 0.0, 1 / h)

    def instead(self, rejected: Tensor) -> Tensor:
        """Weights [..., V], not normalised, of the draw from p, given that q drew `rejected` [...] and p drew another token."""
        ratio, order = self._ratio.sort(-1)
        p, q = self._p.gather(-1, order), self._q.gather(-1, order)
        above = torch.nn.functional.pad(q.flip(-1).cumsum(-1).flip(-1)[..., 1:], (0, 1))
        h = ratio * p.cumsum(-1) + above
        before = torch.nn.functional.pad(ratio[..., :-1], (1, 0))
        h_before = torch.cat((self._q.sum(-1, keepdim=True), h[..., :-1]), -1)
        steps = (ratio - before) / (h * h_before)
        # Up to infinity the integral is 1 / (slope · h).
        steps = torch.where(ratio.isinf(), 1 / (self._p.sum(-1, keepdim=True) * h_before), steps)
        steps = torch.where(before.isinf(), 0.0, steps)
        integral = torch.empty_like(steps).scatter_(-1, order, steps.cumsum(-1))
        return self._p * (at(integral, rejected).unsqueeze(-1) - integral).clamp_min(0)

    def uniforms(self, tokens: Tensor, exponentials: Tensor) -> Tensor:
        """Uniforms [...] that are below `acceptance` exactly where `tokens` [...], drawn from q with this noise, are also the draws from p.

        Let E be the noise. If q draws v, x = E(v)/q(v) is exponential, and each other token's E exceeds the least value at which q draws
        v. Each excess is an independent exponential and sets a bound: p draws v if E(v) is below all bounds. The least bound times
        the sum of the bounds' rates is y, also exponential. The uniform is x/(x + y), or 0 where the acceptance probability is 1.
        """
        own = at(exponentials, tokens).unsqueeze(-1)
        q, p = (at(each, tokens).unsqueeze(-1) for each in (self._q, self._p))
        rate = (self._p - self._q * p / q).clamp_min(0)  # multiplied by p(v), since p(v) may be 0
        rate = rate.scatter(-1, tokens.unsqueeze(-1), 0.0)  # rounding may leave it slightly above 0
        excess = (exponentials - own * self._q / q).clamp_min(0)
        bound = torch.where(rate > 0, excess / rate, torch.inf).amin(-1)
        total, first = rate.sum(-1), (own / q).squeeze(-1)
        return torch.where(total > 0, first / (first + bound * total), 0.0)
