"""What the other methods, or another lenience, would have done with the same proposals and the same coins.

Pure functions on tensors, beside `methods`: acceptance probabilities come from the rules themselves, flips from
solving them for the lenience. A flip is a lenience where a verdict (coin < acceptance) changes: from the flip on, the
verdict is the other one. Knows no model, no trace and no page.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from specviz.methods import FLOOR, METHODS, Beliefs, Ruling, rule, total_variation
from specviz.sampling import at

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
    best_q, best_p = beliefs.q1.amax(-1).double(), beliefs.p1.amax(-1).double()
    always, never = torch.full_like(p, math.inf), torch.full_like(p, -math.inf)
    # Verdicts of the rules that trust the drafter as a whole, where they do not: p's own.
    verifier_accepts = torch.where(coin * q < p, always, never)
    # A token that is not trusted is accepted while the q of all that is not trusted exceeds this.
    share = torch.where(p > 0, coin * q / p.clamp_min(torch.finfo(p.dtype).tiny), math.inf)
    until_v1, until_v2 = (_crossing(s, beliefs.q, share, at(s, tokens)) for s in (beliefs.q1, beliefs.p1))
    # `speed`: coin < p / ((1 - a) q), and its denominator is floored.
    strict = 1 - p / (coin * q).clamp_min(torch.finfo(p.dtype).tiny)
    disagreement = total_variation(beliefs.q, beliefs.p).double()
    flat = torch.where(best_p > best_q, always, never)  # without disagreement lenience changes nothing
    opt = torch.where(disagreement > 0, (best_p - best_q) / disagreement, flat)
    v1, v2 = at(beliefs.q1, tokens).double(), at(beliefs.p1, tokens).double()
    until_since = {
        "speed": (never, torch.where(p > coin * FLOOR, strict, always)),
        "cascade_chow": (verifier_accepts, 1 - best_q),
        "cascade_diff": (verifier_accepts, best_p - best_q),
        "cascade_opt": (verifier_accepts, opt),
    }
    for name, ends in (
        ("cascade_tokenV1", (until_v1, v1)),
        ("cascade_tokenV2", (until_v2, v2)),
        ("cascade_tokenV3", (until_v2, v2)),
    ):
        until_since[name] = (_lenience(name, ends[0], best_p), _lenience(name, ends[1], best_p))
    found = [
        _within(name, *until_since[name])
        if name in until_since
        else always.unsqueeze(-1).expand(*p.shape, FLIPS)
        for name in METHODS
    ]
    return torch.stack(found, -2)


def _within(name: str, until: Tensor, since: Tensor) -> Tensor:
    """The flips [..., 2] of one method that lie in its range; at the range's lower end nothing changes any more."""
    low, high = METHODS[name].lenience_range
    both = torch.stack([until, since], -1)
    real = (until < since).unsqueeze(-1) & (both > low) & (both <= high) & both.isfinite()
    return torch.where(real, both, math.inf).sort(-1).values


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
    # Sorting a vocabulary takes too long; the bits of a float order it too, and are searched half by half.
    bits = scores.float().view(torch.int32)
    rest = share.to(weights.dtype).unsqueeze(-1)
    upper, lower = bits >> _HALF, bits & (1 << _HALF) - 1
    bucket, rest = _first_beyond(upper, weights, rest)
    here = upper == bucket
    place, _ = _first_beyond(lower, weights * here, rest)
    found = torch.where(here & (lower <= place), scores, -math.inf).amax(-1).double()
    found = torch.where(weights.sum(-1) > share, found, math.inf)
    return torch.where(found > own, found, -math.inf)


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
    trusted = ruling.score >= ruling.threshold
    lowest = torch.where(trusted, ruling.score, math.inf).amin(-1)
    highest = torch.where(trusted, -math.inf, ruling.score).amax(-1)
    best = ruling.beliefs.p1.amax(-1).double()
    ends = [_lenience(ruling.method.name, score.double(), best) for score in (lowest, highest)]
    return torch.stack(ends, -1).clamp(*ruling.method.lenience_range)


def _lenience(name: str, score: Tensor, best: Tensor) -> Tensor:
    """The lenience from which a token rule trusts a token of that score."""
    return 1 - score / best if name == "cascade_tokenV3" else best - score
