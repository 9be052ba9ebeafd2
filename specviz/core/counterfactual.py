"""What the other methods, or another lenience, would have done with the same proposals and the same coins.

Pure functions on tensors, beside `methods`: acceptance probabilities come from the rules themselves, flips from
solving them for the lenience. A flip is a lenience where a verdict (coin < acceptance) changes: from the flip on, the
verdict is the other one. Knows no model, no trace and no page.
"""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor

from specviz.core.methods import FLOOR, METHODS, Beliefs, Ruling, rule
from specviz.core.sampling import at, indicator, total

FLIPS = 2
"""A verdict changes at most twice: a token rule may accept, then reject, then trust."""
_HALF = 15
"""Half of the bits that count in a float32 from 0 to 1."""


def leniences(method: str, lenience: float) -> dict[str, float]:
    """The lenience at which each method is asked: its default, but the run's own for the run's method."""
    return {name: other.default_lenience for name, other in METHODS.items()} | {method: lenience}


def acceptances(own: Ruling, tokens: Tensor) -> Tensor:
    """Acceptance [..., 9] of proposals `tokens` [...] under every method, in the order of `METHODS`."""
    rulings = (
        own if method.name == own.method.name else rule(method, own.beliefs, method.default_lenience)
        for method in METHODS.values()
    )
    return torch.stack([ruling.acceptance(tokens) for ruling in rulings], -1)


def flips(beliefs: Beliefs, tokens: Tensor, coins: Tensor) -> Tensor:
    """Leniences [..., 9, 2] at which the verdict on `tokens` [...] changes, ascending; infinity where none is left.

    Every verdict is of one shape: accepted below one lenience (`until`), rejected from there on, accepted again from
    another (`since`) on. Either may lie outside the method's range, and where `until` comes last nothing changes.
    """
    q, p, coin = at(beliefs.q, tokens).double(), at(beliefs.p, tokens).double(), coins.double()
    best_q, best_p = beliefs.best_q.squeeze(-1).double(), beliefs.best_p.squeeze(-1).double()
    always, never = torch.full_like(p, math.inf), torch.full_like(p, -math.inf)
    # Verdicts of the rules that trust the drafter as a whole, where they do not: p's own.
    verifier_accepts = torch.where(coin * q < p, always, never)
    # A token that is not trusted is accepted while the q of all that is not trusted exceeds this.
    share = torch.where(p > 0, coin * q / p.clamp_min(torch.finfo(p.dtype).tiny), math.inf)
    own_v1, own_v2 = (at(scores, tokens).double() for scores in (beliefs.q1, beliefs.p1))
    until_v1 = _crossing(beliefs.q1, beliefs.q, share, own_v1)
    until_v2 = _crossing(beliefs.p1, beliefs.q, share, own_v2)
    # `speed`: coin < p / ((1 - a) q), and its denominator is floored.
    strict = 1 - p / (coin * q).clamp_min(torch.finfo(p.dtype).tiny)
    disagreement = beliefs.disagreement.squeeze(-1).double()
    flat = torch.where(best_p > best_q, always, never)  # without disagreement lenience changes nothing
    until_since = {
        "drafter_only": (always, always),
        "verifier_only": (always, always),
        "speed": (never, torch.where(p > coin * FLOOR, strict, always)),
        "cascade_chow": (verifier_accepts, 1 - best_q),
        "cascade_diff": (verifier_accepts, best_p - best_q),
        "cascade_opt": (
            verifier_accepts,
            torch.where(disagreement > 0, (best_p - best_q) / disagreement, flat),
        ),
    }
    for name, until, own in (
        ("cascade_tokenV1", until_v1, own_v1),
        ("cascade_tokenV2", until_v2, own_v2),
        ("cascade_tokenV3", until_v2, own_v2),
    ):
        until_since[name] = (_lenience(name, until, best_p), _lenience(name, own, best_p))
    both = torch.stack([end for name in METHODS for end in until_since[name]], -1).unflatten(-1, (-1, FLIPS))
    low, high = _ranges(both.device)
    # At the lower end of its range nothing changes any more.
    real = (both[..., :1] < both[..., 1:]) & (both > low) & (both <= high) & both.isfinite()
    return torch.where(real, both, math.inf).sort(-1).values


@cache
def _ranges(device: torch.device) -> tuple[Tensor, Tensor]:
    """The ends of all methods' leniences, float64 [9, 1] each: sent to a device only once."""
    ranges = [method.lenience_range for method in METHODS.values()]
    low, high = torch.tensor(ranges, dtype=torch.float64, device=device).unsqueeze(-1).unbind(-2)
    return low, high


def _crossing(scores: Tensor, weights: Tensor, share: Tensor, own: Tensor) -> Tensor:
    """Where, as a threshold on scores falls from infinity, the weight below it ceases to exceed `share`.

    Args:
        scores, weights: [..., V], not negative.
        share: [...].
        own: [...], the proposal's own score; a threshold that has come down to it trusts the proposal.

    Returns:
        That threshold [...], which is one of the scores; -infinity where it is not above `own`, and infinity where
        even all weights together do not exceed `share`.
    """
    whole = total(weights).squeeze(-1)
    up_to_own = total(indicator(torch.le, scores, own.to(scores.dtype).unsqueeze(-1)).mul_(weights)).squeeze(
        -1
    )
    found = torch.where(share < whole, -math.inf, math.inf).to(share.dtype)
    between = (up_to_own <= share) & (share < whole)
    searched = places(between)
    if len(searched):
        rows = [values.reshape(-1, values.shape[-1])[searched] for values in (scores, weights)]
        deep = torch.full_like(found, -math.inf).flatten()
        deep[searched] = _search(rows[0], rows[1], share.reshape(-1, 1)[searched])
        deep = deep.view_as(found)
        found = torch.where(between & (deep > own), deep, found)
    return found


def places(mask: Tensor) -> Tensor:
    """Numbers [n] of the places where `mask` holds, counted through all of it; off the CPU those of all places.

    To look where they are is free on the CPU; elsewhere the host would have to wait for the device.
    """
    flat = mask.flatten()
    return flat.nonzero()[:, 0] if flat.device.type == "cpu" else torch.arange(len(flat), device=flat.device)


def _search(scores: Tensor, weights: Tensor, share: Tensor) -> Tensor:
    """The least of `scores` [n, V] up to which the weights exceed `share` [n, 1]: float64 [n]."""
    # Sorting a vocabulary takes too long; the bits of a float order it too, and are searched half by half.
    bits = scores.float().view(torch.int32)
    upper, lower = bits >> _HALF, bits & (1 << _HALF) - 1
    bucket, rest = _first_beyond(upper, weights, share.to(weights.dtype))
    here = upper == bucket
    place, _ = _first_beyond(lower, weights * here, rest)
    return torch.where(here & (lower <= place), scores, -math.inf).amax(-1).double()


def _first_beyond(keys: Tensor, weights: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    """The first key [..., 1] at which the weights up to it exceed `share` [..., 1], and the share less those below."""
    mass = torch.zeros(*keys.shape[:-1], 1 << _HALF, dtype=weights.dtype, device=weights.device)
    mass = mass.scatter_add_(-1, keys.long(), weights).cumsum(-1)
    key = torch.searchsorted(mass, share, right=True).clamp_max((1 << _HALF) - 1)
    below = torch.where(key > 0, mass.gather(-1, (key - 1).clamp_min(0)), 0.0)
    return key, share - below


def kept(ruling: Ruling) -> Tensor | None:
    """Leniences from [..., 0] up to [..., 1] between which a token rule trusts the same tokens, its own among them.

    While they do, a rejection draws the same replacement. None for all other methods: what they draw after a
    rejection does not depend on lenience.
    """
    if ruling.score is None or ruling.threshold is None or ruling.score.shape[-1] == 1:
        return None
    # No score exceeds 1: two more, or two less, sets tokens apart (several times faster than a choice by booleans).
    trusted = indicator(torch.ge, ruling.score, ruling.threshold).mul_(2)
    highest = (ruling.score - trusted).amax(-1)
    lowest = (ruling.score - trusted.sub_(2)).amin(-1)
    highest = torch.where(highest < 0, -math.inf, highest)
    lowest = torch.where(lowest >= 2, math.inf, lowest)
    best = ruling.beliefs.best_p.squeeze(-1).double()
    ends = [_lenience(ruling.method.name, score.double(), best) for score in (lowest, highest)]
    return torch.stack(ends, -1).clamp(*ruling.method.lenience_range)


def _lenience(name: str, score: Tensor, best: Tensor) -> Tensor:
    """The lenience from which a token rule trusts a token of that score."""
    return 1 - score / best if name == "cascade_tokenV3" else best - score
