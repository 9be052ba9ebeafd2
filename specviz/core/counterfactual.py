"""Counterfactuals: what the other methods, or another lenience, would have decided about the same draft tokens and coins.

Pure functions on tensors, beside `target`: acceptance probabilities come from the rules themselves, flips from the rules solved for
the lenience, as the methods' rows have it. A flip is a lenience at which the verdict (coin < acceptance) changes and stays
changed until the next flip. Knows no model, no trace and no page.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache

import numpy as np
import torch
from torch import Tensor

from specviz.core import kernels
from specviz.core.distributions import Distributions, select
from specviz.core.examined import Examined, rows, split
from specviz.core.method import Method
from specviz.core.methods import FLOOR, METHODS, PAPER
from specviz.core.sampling import at, indicator, total
from specviz.core.target import Target, Values, accepted_share

_AT_ONCE = 48
"""Draft tokens of several parts that are looked at together: their distributions are copied."""
FLIPS = 2
"""A verdict changes at most twice as lenience grows: a token rule may accept, then reject, then trust."""
_HALF = 15
"""Half of the bits of a float32 in [0, 1]."""


def alternatives(own: Method) -> list[Method]:
    """What a run of a method is compared with: the paper's nine, and itself."""
    nine = [METHODS[name] for name in PAPER]
    return nine if own.name in PAPER else [*nine, own]


def leniences(own: Method, lenience: float) -> dict[str, float]:
    """The lenience each alternative is evaluated at: its default, and the run's own for the run's method."""
    return {other.name: other.default_lenience for other in alternatives(own)} | {own.name: lenience}


def alternative_targets(own: Target) -> list[Target]:
    """The targets of the `alternatives` of a target's method: itself, and others at their default leniences."""
    return [
        own
        if method.name == own.method.name
        else Target.of(method, own.distributions, method.default_lenience)
        for method in alternatives(own.method)
    ]


def counterfactuals(parts: Sequence[Examined]) -> list[tuple[Values, Values]]:
    """Acceptance [n, m] and flips [n, m, 2] of each part under the m `alternatives` of its method."""
    if parts and kernels.serve(parts[0].whole.distributions.q):
        return _compiled(parts)
    return [found for some in _in_company(parts) for found in _together(some)]


def _compiled(parts: Sequence[Examined]) -> list[tuple[Values, Values]]:
    """As `counterfactuals`, the paper's methods by a compiled loop."""
    leniences = np.tile(_DEFAULTS, (sum(map(len, parts)), 1))
    for part, own in zip(parts, split(leniences, parts), strict=True):
        if part.whole.method.name in PAPER:
            own[:, PAPER.index(part.whole.method.name)] = part.numbers(part.whole.lenience)
    addresses = [rows(parts, name) for name in ("q", "p", "q1", "p1")]
    tokens = np.concatenate([part.numbers(part.all_tokens) for part in parts])
    coins = np.concatenate([part.numbers(part.all_coins) for part in parts])
    size = parts[0].whole.distributions.q.shape[-1]
    found = kernels.nine(addresses, size, tokens, coins, leniences, _RANGES, FLOOR)
    acceptances, flips = (split(values, parts) for values in found)
    return [
        nine if part.whole.method.name in PAPER else _beside(part, nine)
        for part, nine in zip(parts, zip(acceptances, flips, strict=True), strict=True)
    ]


_DEFAULTS = np.array([METHODS[name].default_lenience for name in PAPER])
_RANGES = np.array([METHODS[name].lenience_range for name in PAPER]).T.copy()


def _beside(part: Examined, nine: tuple[Values, Values]) -> tuple[Tensor, Tensor]:
    """What the nine would have made of a part, and beside it what its own method made of it."""
    own = _of([part.target], part.tokens, part.coins)
    acceptances, flips = (
        torch.cat((torch.as_tensor(each), mine), 1) for each, mine in zip(nine, own, strict=True)
    )
    return acceptances, flips


def _in_company(parts: Iterable[Examined]) -> Iterator[list[Examined]]:
    """The parts, as many at a time as `_AT_ONCE` allows."""
    some: list[Examined] = []
    for part in parts:
        if some and sum(map(len, (*some, part))) > _AT_ONCE:
            yield some
            some = []
        some.append(part)
    if some:
        yield some


def _together(parts: list[Examined]) -> list[tuple[Tensor, Tensor]]:
    """As `counterfactuals`. The paper's methods at their defaults make the same of a token whoever decided it: once for all."""
    if len(parts) == 1:
        return [_of(alternative_targets(parts[0].target), parts[0].tokens, parts[0].coins)]
    sizes = [len(part) for part in parts]
    joined = Distributions.joined([part.distributions for part in parts], sizes)
    nine = [Target.of(METHODS[name], joined, METHODS[name].default_lenience) for name in PAPER]
    tokens, coins = (torch.cat([getattr(part, name) for part in parts]) for name in ("tokens", "coins"))
    acceptances, flips = (each.split(sizes) for each in _of(nine, tokens, coins))
    return [_with_own(*each) for each in zip(parts, acceptances, flips, strict=True)]


def _of(targets: Sequence[Target], tokens: Tensor, coins: Tensor) -> tuple[Tensor, Tensor]:
    found = Counterfactual(targets, tokens, coins)
    return found.acceptances(), found.flips()


def _with_own(part: Examined, acceptances: Tensor, flips: Tensor) -> tuple[Tensor, Tensor]:
    """What the nine would have made of a part, and what its own method made of it at its own lenience."""
    method, lenience = part.whole.method, part.whole.lenience
    if method.name in PAPER and not isinstance(lenience, Tensor) and lenience == method.default_lenience:
        return acceptances, flips
    if method.name not in PAPER:
        return _beside(part, (acceptances, flips))
    own = _of([part.target], part.tokens, part.coins)
    index = PAPER.index(method.name)
    acceptances[:, index], flips[:, index] = own[0][:, 0], own[1][:, 0]
    return acceptances, flips


class Counterfactual:
    """What some methods would have made of some draft tokens with the same coins, from two models' distributions."""

    def __init__(self, targets: Sequence[Target], tokens: Tensor, coins: Tensor) -> None:
        """Of draft tokens `tokens` [...] and `coins` [...]; `targets`, one a method, are over the same distributions."""
        self._b, self._tokens, self._coins = targets[0].distributions, tokens, coins.double()
        self._q, self._p = (at(each, tokens) for each in (self._b.q, self._b.p))
        self._targets = targets
        self._rules = [_rule_at(target, tokens) for target in targets]
        self._crossings: list[tuple[Tensor, Tensor]] = []  # by score: several methods judge by the same one

    def acceptances(self) -> Tensor:
        """Acceptance [..., n] under each method, in their order."""
        rules = {index: rule for index, rule in enumerate(self._rules) if rule}
        by_rule: dict[int, Tensor] = {}
        if rules:
            score, threshold, deferred = (torch.stack(each, -1) for each in zip(*rules.values(), strict=True))
            q, p = self._q.unsqueeze(-1), self._p.unsqueeze(-1)
            pi = indicator(torch.ge, score, threshold) * q + p * deferred
            by_rule = dict(zip(rules, accepted_share(pi, q).unbind(-1), strict=True))
        each = (
            by_rule[index] if index in by_rule else target.acceptance(self._tokens)
            for index, target in enumerate(self._targets)
        )
        return torch.stack(list(each), -1)

    def flips(self) -> Tensor:
        """Leniences [..., n, 2] at which each method's verdict changes, ascending; infinity where none is left.

        Every verdict is of one shape: accepted below one lenience (`until`), rejected from there on, accepted again from
        another (`since`) on. Either may lie outside the method's range, and where `until` comes last nothing changes.
        Of a method that does not solve for the lenience there are none.
        """
        q, p = self._q.double(), self._p.double()
        ends = [
            self._until_since(target, rule, q, p)
            for target, rule in zip(self._targets, self._rules, strict=True)
        ]
        both = torch.stack([each for pair in ends for each in pair], -1).unflatten(-1, (-1, FLIPS))
        low, high = _ranges(tuple(target.method.lenience_range for target in self._targets), both.device)
        # At the lower end of its range nothing changes any more.
        real = (both[..., :1] < both[..., 1:]) & (both > low) & (both <= high) & both.isfinite()
        return torch.where(real, both, math.inf).sort(-1).values

    def _until_since(
        self, target: Target, rule: tuple[Tensor, Tensor, Tensor] | None, q: Tensor, p: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The leniences [...] below which a token is accepted, and from which on it is accepted again."""
        method, score = target.method, target.score
        if method.accepts_from is not None:
            return self._never, method.accepts_from(self._b, q, p, self._coins)
        if score is None or rule is None or method.lenience_at is None:
            return self._always, self._always
        own = rule[0].double()  # which the lenience is not part of, where the test is solved for it
        since = method.lenience_at(self._b, own)
        if not target.judges_tokens:
            # Where the drafter is not trusted as a whole, decoding is lossless towards p.
            return torch.where(self._coins * q < p, self._always, self._never), since
        return method.lenience_at(self._b, self._crossing(score, own, q, p)), since

    @cached_property
    def _always(self) -> Tensor:
        return torch.full_like(self._coins, math.inf)

    @cached_property
    def _never(self) -> Tensor:
        return -self._always

    def _crossing(self, score: Tensor, own: Tensor, q: Tensor, p: Tensor) -> Tensor:
        for known, crossing in self._crossings:
            if known is score:
                return crossing
        # An untrusted token is accepted while the mass of q on all untrusted tokens exceeds this.
        share = torch.where(p > 0, self._coins * q / p.clamp_min(torch.finfo(p.dtype).tiny), math.inf)
        self._crossings.append((score, _crossing(score, self._b.q, share, own)))
        return self._crossings[-1][1]


@lru_cache
def _ranges(ranges: tuple[tuple[float, float], ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Lower and upper ends of ranges [n], float64 [n, 1] each: copied to a device only once."""
    low, high = torch.tensor(ranges, dtype=torch.float64, device=device).unsqueeze(-1).unbind(-2)
    return low, high


def _rule_at(target: Target, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
    """Score, threshold and what goes to p [...] at `tokens` [...]; None without a rule."""
    test, deferred = target.deferral_test(tokens), target.deferred
    return None if test is None or deferred is None else (*test, deferred.squeeze(-1))


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
    if mask.device.type == "cpu":
        return torch.from_numpy(np.flatnonzero(mask.numpy()))
    return torch.arange(mask.numel(), device=mask.device)


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


def same_residual(target: Target, last: Tensor) -> Tensor | None:
    """The lenience range [B, 0] to [B, 1] in which a rejection at step `last` [B] of K positions each draws the same replacement; None
    where lenience does not matter.

    A token rule draws the same one as long as it trusts the same set of tokens. Where it is not known when it does, or the
    share of p depends on the lenience, the range is empty: the target's own lenience, twice.
    """
    method, score = target.method, target.score
    if not (target.judges_tokens or method.scale is not None) or not method.has_lenience:
        return None
    if score is None or target.threshold is None or method.lenience_at is None:
        own = torch.zeros_like(last, dtype=torch.float64)[:, None] + target.lenience
        return own[:, :1].expand(-1, 2)
    where = target.at_steps(last)
    both = target.distributions.select(where)
    ends = [method.lenience_at(both, each.double()) for each in _neighbours(score, target.threshold, where)]
    return torch.stack(ends, -1).clamp(*method.lenience_range)


def _neighbours(score: Tensor, threshold: Tensor, where: Tensor) -> tuple[Tensor, Tensor]:
    """The lowest score [..., V] that reaches the threshold [..., 1], and the highest that does not, at some of all positions,
    flattened: [n] each, infinite where there is none.
    """
    if kernels.serve(score):
        return kernels.neighbours(score, threshold, where)
    score, threshold = select(score, where), select(threshold.expand(*score.shape[:-1], 1), where)
    # No score exceeds 1, so adding or subtracting 2 masks tokens: several times faster than `where` with booleans.
    trusted = indicator(torch.ge, score, threshold).mul_(2)
    highest = (score - trusted).amax(-1)
    lowest = (score - trusted.sub_(2)).amin(-1)
    return torch.where(lowest >= 2, math.inf, lowest), torch.where(highest < 0, -math.inf, highest)
