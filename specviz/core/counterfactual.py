"""Counterfactuals: what the other methods, or another lenience, would have decided about the same draft tokens and coins.

Pure functions on tensors, beside `methods`: acceptance probabilities come from the rules themselves, flips from
solving the rules for the lenience. A flip is a lenience at which the verdict (coin < acceptance) changes and stays
changed until the next flip. Knows no model, no trace and no page.
"""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor

from specviz.core import kernels
from specviz.core.methods import FLOOR, METHODS, Distributions, Target
from specviz.core.sampling import at, indicator, total

FLIPS = 2
"""A verdict changes at most twice as lenience grows: a token rule may accept, then reject, then trust."""
_HALF = 15
"""Half of the bits of a float32 in [0, 1]."""


def leniences(method: str, lenience: float) -> dict[str, float]:
    """The lenience each method is evaluated at: its default, and the run's own for the run's method."""
    return {name: other.default_lenience for name, other in METHODS.items()} | {method: lenience}


def acceptances(own: Target, tokens: Tensor) -> Tensor:
    """Acceptance [..., 9] of draft tokens `tokens` [...] under every method, in the order of `METHODS`."""
    targets = (
        own
        if method.name == own.method.name
        else Target.of(method, own.distributions, method.default_lenience)
        for method in METHODS.values()
    )
    return torch.stack([target.acceptance(tokens) for target in targets], -1)


def flips(distributions: Distributions, tokens: Tensor, coins: Tensor) -> Tensor:
    """Leniences [..., 9, 2] at which the verdict on `tokens` [...] changes, ascending; infinity where none is left.

    Every verdict is of one shape: accepted below one lenience (`until`), rejected from there on, accepted again from
    another (`since`) on. Either may lie outside the method's range, and where `until` comes last nothing changes.
    """
    q, p, coin = at(distributions.q, tokens).double(), at(distributions.p, tokens).double(), coins.double()
    max_q, max_p = distributions.max_q1.squeeze(-1).double(), distributions.max_p1.squeeze(-1).double()
    always, never = torch.full_like(p, math.inf), torch.full_like(p, -math.inf)
    # The rules that trust the drafter as a whole, where they do not trust it: verdict of lossless decoding towards p.
    verifier_accepts = torch.where(coin * q < p, always, never)
    # An untrusted token is accepted while the mass of q on all untrusted tokens exceeds this.
    share = torch.where(p > 0, coin * q / p.clamp_min(torch.finfo(p.dtype).tiny), math.inf)
    own_v1, own_v2 = (at(scores, tokens).double() for scores in (distributions.q1, distributions.p1))
    until_v1 = _crossing(distributions.q1, distributions.q, share, own_v1)
    until_v2 = _crossing(distributions.p1, distributions.q, share, own_v2)
    # `speed`: coin < p / ((1 - a) q), and its denominator is floored.
    strict = 1 - p / (coin * q).clamp_min(torch.finfo(p.dtype).tiny)
    variation = distributions.total_variation.squeeze(-1).double()
    flat = torch.where(max_p > max_q, always, never)  # where q = p lenience changes nothing
    until_since = {
        "drafter_only": (always, always),
        "verifier_only": (always, always),
        "speed": (never, torch.where(p > coin * FLOOR, strict, always)),
        "cascade_chow": (verifier_accepts, 1 - max_q),
        "cascade_diff": (verifier_accepts, max_p - max_q),
        "cascade_opt": (
            verifier_accepts,
            torch.where(variation > 0, (max_p - max_q) / variation, flat),
        ),
    }
    for name, until, own in (
        ("cascade_tokenV1", until_v1, own_v1),
        ("cascade_tokenV2", until_v2, own_v2),
        ("cascade_tokenV3", until_v2, own_v2),
    ):
        until_since[name] = (_lenience(name, until, max_p), _lenience(name, own, max_p))
    both = torch.stack([end for name in METHODS for end in until_since[name]], -1).unflatten(-1, (-1, FLIPS))
    low, high = _ranges(both.device)
    # At the lower end of its range nothing changes any more.
    real = (both[..., :1] < both[..., 1:]) & (both > low) & (both <= high) & both.isfinite()
    return torch.where(real, both, math.inf).sort(-1).values


@cache
def _ranges(device: torch.device) -> tuple[Tensor, Tensor]:
    """Lower and upper ends of all methods' lenience ranges, float64 [9, 1] each: copied to a device only once."""
    ranges = [method.lenience_range for method in METHODS.values()]
    low, high = torch.tensor(ranges, dtype=torch.float64, device=device).unsqueeze(-1).unbind(-2)
    return low, high


def _crossing(scores: Tensor, weights: Tensor, share: Tensor, own: Tensor) -> Tensor:
    """The threshold at which, falling from infinity, the weight of the scores below it no longer exceeds `share`.

    Args:
        scores, weights: [..., V], not negative.
        share: [...].
        own: [...], the draft token's own score; a threshold at or below it trusts the token.

    Returns:
        That threshold [...], one of the scores; -infinity where it is not above `own`, infinity where even all
        weights together do not exceed `share`.
    """
    if kernels.serve(scores):
        return kernels.crossing(scores, weights, share, own)
    whole = total(weights).squeeze(-1)
    up_to_own = total(indicator(torch.le, scores, own.to(scores.dtype).unsqueeze(-1)).mul_(weights)).squeeze(
        -1
    )
    found = torch.where(share < whole, -math.inf, math.inf).to(share.dtype)
    between = (up_to_own <= share) & (share < whole)
    searched = indices_where(between)
    if len(searched):
        rows = [values.reshape(-1, values.shape[-1])[searched] for values in (scores, weights)]
        crossings = torch.full_like(found, -math.inf).flatten()
        crossings[searched] = _search(rows[0], rows[1], share.reshape(-1, 1)[searched])
        crossings = crossings.view_as(found)
        found = torch.where(between & (crossings > own), crossings, found)
    return found


def indices_where(mask: Tensor) -> Tensor:
    """Flat indices [n] where `mask` holds; on devices other than the CPU the indices of all its elements.

    Finding them is free on the CPU; on a GPU the host would have to wait for the device.
    """
    flat = mask.flatten()
    return flat.nonzero()[:, 0] if flat.device.type == "cpu" else torch.arange(len(flat), device=flat.device)


def _search(scores: Tensor, weights: Tensor, share: Tensor) -> Tensor:
    """The smallest of `scores` [n, V] up to which the weights exceed `share` [n, 1]: float64 [n]."""
    # Sorting a vocabulary takes too long. The bits of positive floats sort alike: a radix search in two halves.
    bits = scores.float().view(torch.int32)
    upper, lower = bits >> _HALF, bits & (1 << _HALF) - 1
    bucket, rest = _first_beyond(upper, weights, share.to(weights.dtype))
    here = upper == bucket
    key, _ = _first_beyond(lower, weights * here, rest)
    return torch.where(here & (lower <= key), scores, -math.inf).amax(-1).double()


def _first_beyond(keys: Tensor, weights: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    """The first key [..., 1] whose cumulative weight exceeds `share` [..., 1], and `share` minus the weight below it."""
    mass = torch.zeros(*keys.shape[:-1], 1 << _HALF, dtype=weights.dtype, device=weights.device)
    mass = mass.scatter_add_(-1, keys.long(), weights).cumsum(-1)
    key = torch.searchsorted(mass, share, right=True).clamp_max((1 << _HALF) - 1)
    below = torch.where(key > 0, mass.gather(-1, (key - 1).clamp_min(0)), 0.0)
    return key, share - below


def same_residual(target: Target) -> Tensor:
    """The lenience range [..., 0] to [..., 1] in which a token rule trusts the same set of tokens, so that a rejection
    draws the same replacement. The residual of other methods does not depend on lenience.
    """
    assert target.score is not None
    assert target.threshold is not None
    # No score exceeds 1, so adding or subtracting 2 masks tokens: several times faster than `where` with booleans.
    trusted = indicator(torch.ge, target.score, target.threshold).mul_(2)
    highest = (target.score - trusted).amax(-1)
    lowest = (target.score - trusted.sub_(2)).amin(-1)
    highest = torch.where(highest < 0, -math.inf, highest)
    lowest = torch.where(lowest >= 2, math.inf, lowest)
    best = target.distributions.max_p1.squeeze(-1).double()
    ends = [_lenience(target.method.name, score.double(), best) for score in (lowest, highest)]
    return torch.stack(ends, -1).clamp(*target.method.lenience_range)


def _lenience(name: str, score: Tensor, best: Tensor) -> Tensor:
    """The lenience from which on a token rule trusts a token of that score."""
    return 1 - score / best if name == "cascade_tokenV3" else best - score
