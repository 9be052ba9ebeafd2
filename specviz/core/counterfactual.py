"""Counterfactuals: what the other methods, or another lenience, would have decided about the same draft tokens and coins.

Pure functions on tensors, beside `target`: acceptance probabilities come from the rules themselves, flips from the rules solved for
the lenience. A flip is a critical lenience at which the verdict (coin < acceptance) changes, and stays changed until the next
flip. Knows no model, no trace and no page.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from specviz.core.backend import indicator, mixture
from specviz.core.method import Method
from specviz.core.methods import METHODS, PAPER
from specviz.core.sampling import at, column
from specviz.core.target import Target, accepted_share

FLIPS = 2
"""A verdict changes at most twice as lenience grows: a token rule may accept, then reject, then trust."""


def alternatives(own: Method) -> list[Method]:
    """What a run of a method is compared with: the paper's nine, and itself."""
    nine = [METHODS[name] for name in PAPER]
    return nine if own.name in PAPER else [*nine, own]


def leniences(own: Method, lenience: float) -> dict[str, float]:
    """The lenience each alternative is evaluated at: its default, and the run's own for the run's method."""
    return {other.name: other.default_lenience for other in alternatives(own)} | {own.name: lenience}


def counterfactuals(own: Target, tokens: Tensor, coins: Tensor) -> tuple[Tensor, Tensor]:
    """What the m `alternatives` of a target's method would have made of draft tokens `tokens` [...] with `coins` [...].

    Returns:
        Acceptance [..., m], the target's own among them.
        Flips [..., m, 2]: leniences at which each method's verdict changes, ascending; infinity where none is left. Of a method
        that cannot be solved for the lenience there are none.
    """
    others = _Alternatives(own, tokens, coins)
    return others.acceptances(), others.flips()


class _Alternatives:
    """The targets of the `alternatives`, and what they make of draft tokens [...]; what several ask is computed once."""

    def __init__(self, own: Target, tokens: Tensor, coins: Tensor) -> None:
        self._targets = [
            own
            if method.name == own.method.name
            else Target.of(method, own.distributions, method.default_lenience)
            for method in alternatives(own.method)
        ]
        self._distributions, self._tokens, self._coins = own.distributions, tokens, coins.double()
        self._q, self._p = (at(each, tokens) for each in (own.distributions.q, own.distributions.p))
        self._tests = [target.deferral_test(tokens) for target in self._targets]

    def acceptances(self) -> Tensor:
        """The acceptance [..., m] by each."""
        found: dict[int, Tensor] = {}
        sides = {
            index: (*test, self._targets[index].deferred) for index, test in enumerate(self._tests) if test
        }
        if sides:  # all rules at once
            score, threshold, deferred = (torch.stack(each, -1) for each in zip(*sides.values(), strict=True))
            q, p = self._q.unsqueeze(-1), self._p.unsqueeze(-1)
            accepted = accepted_share(mixture(q, p, score, threshold, deferred.squeeze(-2)), q)
            found = dict(zip(sides, accepted.unbind(-1), strict=True))
        each = enumerate(self._targets)
        return torch.stack(
            [found[i] if i in found else target.acceptance(self._tokens) for i, target in each], -1
        )

    def flips(self) -> Tensor:
        """The leniences [..., m, 2] at which each verdict changes.

        Every verdict is of one shape: accepted below one lenience (`until`), rejected from there on, accepted again from
        another (`since`) on. Either may lie outside the method's range, and where `until` comes last nothing changes.
        """
        q, p, crossings = self._q.double(), self._p.double(), dict[int, Tensor]()
        always = torch.full_like(q, math.inf)
        # An untrusted token is accepted while this is below the mass of q on all untrusted tokens: 1 where none is trusted.
        share = torch.where(p > 0, self._coins * q / p.clamp_min(torch.finfo(torch.float64).tiny), math.inf)
        untrusted = torch.where(share < 1, math.inf, -math.inf)
        ends = list[Tensor]()
        for target, test in zip(self._targets, self._tests, strict=True):
            method, both, score = target.method, self._distributions, target.score
            if method.critical_lenience_of_coin is not None:
                ends += [-always, method.critical_lenience_of_coin(both, q, p, self._coins)]
            elif test is None or score is None or method.critical_lenience is None:
                ends += [always, always]
            elif not target.judges_tokens:
                ends += [untrusted, method.critical_lenience(both, test[0].double())]
            else:
                own = test[0].double()
                if id(score) not in crossings:  # several methods judge by the same score
                    crossings[id(score)] = both.backend.crossing(score, both.q, share, own)
                # The token is rejected once the threshold falls to the crossing, and trusted once it falls to its own score.
                ends += method.critical_lenience(both, torch.stack((crossings[id(score)], own))).unbind()
        both_ends = torch.stack(ends, -1).unflatten(-1, (-1, FLIPS))
        low, high = _ranges(tuple(target.method.lenience_range for target in self._targets), q.device)
        # At the lower end of its range nothing changes any more.
        real = (both_ends[..., :1] < both_ends[..., 1:]) & (both_ends > low) & (both_ends <= high)
        return torch.where(real & both_ends.isfinite(), both_ends, math.inf).sort(-1).values


@lru_cache
def _ranges(ranges: tuple[tuple[float, float], ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Lower and upper ends of ranges [n], float64 [n, 1] each: copied to a device only once."""
    low, high = torch.tensor(ranges, dtype=torch.float64, device=device).unsqueeze(-1).unbind(-2)
    return low, high


def same_residual(target: Target) -> Tensor | None:
    """The lenience range [..., 2] in which a rejection draws the same replacement; None where lenience does not matter.

    A token rule draws the same one as long as it trusts the same set of tokens. Where it is not known when it does, or the
    share of p depends on the lenience, the range is empty: the target's own lenience, twice.
    """
    method, score = target.method, target.score
    if not (target.judges_tokens or method.share_of is not None) or not method.has_lenience:
        return None
    if score is None or target.threshold is None or method.critical_lenience is None:
        own = torch.zeros_like(target.distributions.q[..., :1], dtype=torch.float64) + column(target.lenience)
        return own.expand(*own.shape[:-1], 2)
    # No score exceeds 1, so adding or subtracting 2 masks tokens: several times faster than `where` with booleans.
    trusted = indicator(torch.ge, score, target.threshold).mul_(2)
    highest, lowest = (score - trusted).amax(-1), (score - trusted.sub_(2)).amin(-1)
    ends = torch.where(lowest >= 2, math.inf, lowest), torch.where(highest < 0, -math.inf, highest)
    critical = [method.critical_lenience(target.distributions, end.double()) for end in ends]
    return torch.stack(critical, -1).clamp(*method.lenience_range).nan_to_num()  # a record holds no infinity
