"""What a method makes of two distributions: the target pi, the acceptance of draft tokens, and the residual.

Pure functions on tensors. Knows no model, no clock, no random number.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from specviz.core import kernels
from specviz.core.distributions import Distributions, Places, excess, places, select
from specviz.core.expression.syntax import compared
from specviz.core.expression.tensors import as_tensor
from specviz.core.method import Method
from specviz.core.methods import FLOOR, PAPER, get_method
from specviz.core.sampling import Number, at, column, draw, indicator, steps, total


def _mass_below(score: Tensor, threshold: Tensor, weights: Tensor) -> Tensor:
    """The weight of tokens whose score is below a threshold [..., 1]: [..., 1]; exactly zero where there are none."""
    if kernels.serve(weights):
        return kernels.mass_below(score, threshold, weights)
    return total(indicator(torch.lt, score, threshold) * weights)


def _normalised(mass: Tensor) -> Tensor:
    """`mass` [..., V] scaled to sum 1; all zeros stay zeros."""
    whole = total(mass)
    return mass / torch.where(whole > 0, whole, 1.0)


def accepted_share(pi: Tensor, q: Tensor) -> Tensor:
    """min(1, pi / q) [...]: the acceptance of tokens that pi and q are of."""
    return (pi / q.clamp_min(torch.finfo(q.dtype).tiny)).clamp_max_(1)


Values: TypeAlias = Tensor | np.ndarray
"""Numbers that compiled loops give as arrays: to make tensors of them would take longer than to find them."""


@dataclass(frozen=True)
class Verdict:
    """What a target makes of draft tokens and their coins.

    Attributes:
        acceptance: the probability that each is accepted, [B, K].
        accepted: how many are, before the first rejection, [B].
        last: index of the last examined one, [B].
        resampled: what replaces the first rejected one, [B]; of no meaning where nothing was rejected.
        probabilities: q, p and pi of each draft token and of what replaces it, [B, K, 2]; they count for examined ones and where
            one was rejected, and q for all. None where they are not wanted.
        test: score and threshold of each, [B, K]; of examined ones they count. None without a test, or where they are not wanted.
        examined: the target where draft tokens were examined, in order, if pi was looked for there alone.
    """

    acceptance: Values
    accepted: Values
    last: Values
    resampled: Values
    probabilities: list[Values] | None = None
    test: tuple[Values, Values] | None = None
    examined: Target | None = None


def examine(acceptance: Tensor, coins: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """How many of each sequence's draft tokens are accepted before the first rejection, and the index of the last examined: [B] each.

    Args:
        acceptance: [B, K].
        coins: [B, K or more].
        counts: draft tokens of each, [B].
    """
    count = acceptance.shape[1]
    passed = coins[:, :count] < acceptance
    passed &= steps(count, acceptance.device) < counts[:, None]
    accepted = passed.cumprod(-1).sum(-1)
    return accepted, torch.minimum(accepted, counts - 1)


@dataclass(frozen=True)
class Target:
    """What a method decodes towards at a set of positions, and with it acceptance and residual.

    Built by `Target.of`. A cascade emits pi(v) = q(v)·1[v trusted] + p(v)·deferred and decodes losslessly towards it:
    accept v with min(1, pi(v)/q(v)), otherwise draw from the residual max(0, pi - q), normalised. `deferred` [..., 1] is the
    mass of q on tokens that are not trusted, which goes to p. Methods without a test (`speed`, and those with a weight) accept by a
    ratio of their own and draw from max(0, share·p - q): pi is what comes of that. Values of single tokens need no pass over the
    vocabulary, except for pi where there is no test.
    """

    method: Method
    distributions: Distributions
    lenience: Number
    score: Tensor | None = None
    threshold: Tensor | None = None
    deferred: Tensor | None = None

    @staticmethod
    def of(method: Method, distributions: Distributions, lenience: Number) -> Target:
        """Apply a method's deferral rule to distributions [..., V]; `lenience` is a number or a tensor [...]."""
        if method.rule is None:
            return Target(method, distributions, lenience)
        score, threshold = method.rule(distributions, column(lenience))
        threshold = threshold.expand(*score.shape[:-1], 1)
        if score.shape[-1] == 1:
            deferred = indicator(torch.lt, score, threshold)
        else:
            deferred = _mass_below(score, threshold, distributions.q)
        return Target(method, distributions, lenience, score, threshold, deferred)

    @property
    def judges_tokens(self) -> bool:
        """Whether the rule trusts token by token."""
        return self.score is not None and self.score.shape[-1] > 1

    def acceptance(self, tokens: Tensor) -> Tensor:
        """Probability [...] that draft tokens `tokens` [...] are accepted."""
        if not self.method.verifies:
            return torch.ones_like(self.distributions.q[..., 0])
        if not self.method.drafts:
            return torch.zeros_like(self.distributions.p[..., 0])
        some = tokens.unsqueeze(-1)
        return self._acceptance(*self._values(some), some).squeeze(-1)

    def pi(self, tokens: Tensor | None = None) -> Tensor:
        """The distribution the method emits: pi [..., V], or pi(v) [...] of `tokens` [...] alone."""
        if tokens is not None:
            return self.probabilities(tokens.unsqueeze(-1))[2].squeeze(-1)
        return self._whole_pi

    @cached_property
    def _whole_pi(self) -> Tensor:
        q, p, score = self._values()
        if not kernels.serve(q):
            return self._pi(q, p, score, None)
        if self.method.name == "speed":
            return kernels.speed(q, p, 1 - column(self.lenience), FLOOR)
        if self.method.weigh is not None:
            proposed = kernels.anywhere(q)
            weights = self.method.weigh(self.distributions, column(self.lenience), proposed)
            shares = None if self.method.scale is None else self._shares(proposed)
            return kernels.by_weight(q, p, proposed, weights, shares)
        return q if not self.method.verifies else kernels.mixture(q, p, score, self.threshold, self.deferred)

    def probabilities(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q, p and pi of `tokens` [..., m], several at each position: [..., m] each."""
        values = self._values(tokens)
        if self._has_ratio and kernels.serve(self.distributions.q):  # a pass over the vocabulary in any case
            return *values[:2], self.pi().gather(-1, tokens)
        return *values[:2], self._pi(*values, tokens)

    @property
    def _is_compiled(self) -> bool:
        """Whether compiled loops serve all of it; of a method with a weight they draw what replaces a rejected token."""
        return self.method.weigh is None and kernels.serve(self.distributions.q)

    def decide(
        self,
        tokens: Tensor,
        counts: Tensor,
        accept_coins: Tensor,
        resample_coins: Tensor,
        records: bool,
    ) -> Verdict:
        """Accept draft tokens until one has a coin that is not below its acceptance, and draw what replaces that one.

        The paper's algorithm 4, without a bonus token.

        Args:
            tokens: of both models' positions [B, K].
            counts: how many of them were drafted, [B], at least 1.
            accept_coins, resample_coins: uniforms of these positions [B, K or more].
            records: whether their probabilities are wanted.
        """
        if self._is_compiled:
            place = _SPEED if self.method.name == "speed" else 0
            q, p = self.distributions.q, self.distributions.p
            rule = self.score, self.threshold, self.deferred
            some = tokens, counts, accept_coins, resample_coins
            found = kernels.decide(place, self.lenience, q, p, None, None, None, rule, FLOOR, *some, records)
            return _verdict(*found, self.method)
        acceptance = self.acceptance(tokens)
        accepted, last = examine(acceptance, accept_coins, counts)
        resampled = self.draw_replacement(last, resample_coins, tokens)
        if not records:
            return Verdict(acceptance, accepted, last, resampled)
        pairs = torch.stack((tokens, resampled[:, None].expand_as(tokens)), -1)
        test = self.deferral_test(tokens)
        if not self._has_ratio or not tokens.is_cpu:
            return Verdict(acceptance, accepted, last, resampled, list(self.probabilities(pairs)), test)
        # pi takes a pass over the vocabulary for each position: for examined ones alone.
        chosen = (steps(tokens.shape[1], tokens.device) <= last[:, None]).flatten().nonzero()[:, 0]
        examined, (q, p, _) = self.select(chosen), self._values(pairs)
        pi = torch.zeros_like(q)
        pi.view(-1, 2)[chosen] = examined.probabilities(pairs.view(-1, 2)[chosen])[2]
        return Verdict(acceptance, accepted, last, resampled, [q, p, pi], test, examined)

    def _pi(self, q: Tensor, p: Tensor, score: Tensor | None, tokens: Tensor | None) -> Tensor:
        if self._has_ratio:
            return q * self._acceptance(q, p, score, tokens) + self._redrawn(tokens)
        return self._mixture(q, p, score)

    @property
    def _has_ratio(self) -> bool:
        """Whether it accepts by a ratio of its own."""
        return self.method.name == "speed" or self.method.weigh is not None

    def residual(self, tokens: Tensor | None = None) -> Tensor:
        """The distribution that a rejection of `tokens` [...] draws from: [..., V], normalised; all zeros where it has no mass.

        Only where the method has a share does it matter which token is rejected; without `tokens` all rejections are averaged.
        """
        q, p, score = self._values()
        if not self.method.drafts or not self.method.verifies:
            return p if self.method.verifies else q
        if self.method.scale is not None and tokens is None:
            return _normalised(self._redrawn(None))
        return _normalised((self._mixture(q, p, score, tokens) - q).clamp_min_(0))

    def draw_replacement(self, last: Tensor, uniform: Tensor, tokens: Tensor) -> Tensor:
        """What a rejection at step `last` [B] emits [B], drawn at the uniform of that step.

        Args:
            last: [B].
            uniform: [B, K] or longer.
            tokens: the draft tokens [B, K], that at `last` rejected.
        """
        q, p, score = self._values()
        if kernels.serve(q):
            rule = (score, self.threshold, self.deferred)
            if self.method.scale is not None:
                shares = self._shares(tokens.unsqueeze(-1))
                rule = (torch.zeros_like(shares), torch.full_like(shares, torch.inf), shares)
            return kernels.draw_residual(q, p, *rule, last, uniform)
        own = self.select(self.at_steps(last))
        return draw(own.replacement(at(tokens, last)), at(uniform, last))

    def at_steps(self, steps: Tensor) -> Tensor:
        """Indices [B], for `select`, of one of the K positions of each sequence: `steps` [B]."""
        count = self.distributions.q.shape[1]
        return torch.arange(len(steps), device=steps.device) * count + steps

    def replacement(self, tokens: Tensor | None = None) -> Tensor:
        """What a rejection's draw weighs tokens by [..., V]: the residual, not normalised, since a draw scales anyway; pi
        where it has no mass, which only rounding can lead to. `tokens` [...] as for `residual`.
        """
        q, p, score = self._values()
        mixture = self._mixture(q, p, score, tokens)
        residual = (mixture - q).clamp_min_(0)
        return residual + mixture * (total(residual) <= 0)

    def deferral_test(self, tokens: Tensor) -> tuple[Tensor, Tensor] | None:
        """Score [...] and threshold [...] of `tokens` [...]: trusted where score >= threshold. None without a rule."""
        if self.score is None or self.threshold is None:
            return None
        score = self.score.squeeze(-1) if self.score.shape[-1] == 1 else at(self.score, tokens)
        return score, self.threshold.squeeze(-1)

    def select(self, some: Places, distributions: Distributions | None = None) -> Target:
        """The target at some positions only: indices [n] into all positions, flattened; of `distributions` there, if these were selected."""
        lead = self.distributions.q.shape[:-1]
        some = places(some) if isinstance(some, Tensor) else some

        def chosen(values: Tensor | None) -> Tensor | None:
            return None if values is None else select(values.expand(*lead, -1), some)

        lenience = self.lenience
        if isinstance(lenience, Tensor):
            lenience = select(lenience.unsqueeze(-1).expand(*lead, -1), some).squeeze(-1)
        parts = (chosen(self.score), chosen(self.threshold), chosen(self.deferred))
        return Target(self.method, distributions or self.distributions.select(some), lenience, *parts)

    def pi_rows(self, lead: tuple[int, ...]) -> kernels.PiRows:
        """What pi of a method without a weight follows from, for compiled loops, at all positions [*lead]."""
        if self.method.name == "speed":
            return kernels.PiRows.speed(1 - self.lenience, lead)
        assert self.score is not None
        assert self.threshold is not None
        assert self.deferred is not None
        return kernels.PiRows.rule(self.score, self.threshold, self.deferred, lead)

    def _values(self, tokens: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor | None]:
        """q, p and score: of the whole vocabulary, or of `tokens` [..., m] alone."""
        q, p, score = self.distributions.q, self.distributions.p, self.score
        if tokens is None:
            return q, p, score
        if score is not None and self.judges_tokens:
            score = score.gather(-1, tokens)
        return q.gather(-1, tokens), p.gather(-1, tokens), score

    def _mixture(self, q: Tensor, p: Tensor, score: Tensor | None, rejected: Tensor | None = None) -> Tensor:
        """pi of a cascade; of other methods what their residual leads towards, after `rejected` [...] where that matters."""
        if self.method.scale is not None and rejected is not None:
            return p * self._shares(rejected.unsqueeze(-1))
        if score is None or self.threshold is None or self.deferred is None:
            return p if self.method.verifies else q
        return indicator(torch.ge, score, self.threshold) * q + p * self.deferred

    def _acceptance(self, q: Tensor, p: Tensor, score: Tensor | None, tokens: Tensor | None) -> Tensor:
        if self.method.name == "speed":
            return (p / (as_tensor(1 - column(self.lenience), q) * q).clamp_min_(FLOOR)).clamp_max_(1)
        if self.method.weigh is not None:
            weight = self.method.weigh(self.distributions, column(self.lenience), tokens)
        else:
            weight = self._mixture(q, p, score)
        return accepted_share(weight, q)

    def _shares(self, tokens: Tensor | None) -> Tensor:
        assert self.method.scale is not None
        return self.method.scale(self.distributions, column(self.lenience), tokens)

    def _redrawn(self, tokens: Tensor | None) -> Tensor:
        """The mass that all rejections together emit: [..., V], or of `tokens` [..., m] alone."""
        q, p = self.distributions.q, self.distributions.p
        if self.method.scale is not None:
            proposed = _anywhere(q)
            own = self._values(proposed)[:2]
            rejected = (own[0] - self._acceptance(*own, None, proposed).mul_(own[0])).clamp_min_(0)
            return _emitted((q, p), proposed, own, rejected, self._shares(proposed), tokens)
        accepted = self._acceptance(q, p, None, None).mul_(q)
        lack, rejected = excess(p, q), 1 - total(accepted)
        own = self._values(tokens)[:2]
        return rejected / torch.where(lack > 0, lack, 1.0) * (own[1] - own[0]).clamp_min_(0)


def tests_as_examined(method: Method, logits: Tensor) -> bool:
    """Whether `decide_as_examined` serves: compiled loops, for `speed` and the paper's cascades."""
    return method.name in PAPER and method.drafts and method.verifies and kernels.serve(logits)


def decide_as_examined(
    method: Method,
    lenience: Number,
    distributions: Distributions,
    pending: kernels.Pending,
    tokens: Tensor,
    counts: Tensor,
    accept_coins: Tensor,
    resample_coins: Tensor,
    *,
    records: bool,
    kept: bool,
) -> tuple[Verdict, Target | None]:
    """What `Target.decide` says, to the bit, and the target; p, p1 and the test are found where draft tokens are examined, and only there.

    Args:
        distributions: with q, or what it is made of; where they are to be kept with room for p and p1, which are written.
        pending: how they are found.
        kept: whether the target is wanted; nothing of it is set where no draft token was examined.
    """
    q, p, p1, target = distributions.q, None, None, None
    if kept:
        p, p1 = distributions.p, distributions.p1 if pending.finds_p1 else None
        target = Target(method, distributions, lenience, *_room(method, distributions))
    q1 = distributions.q1 if "q1" in method.reads else None
    rule = (target.score, target.threshold, target.deferred) if target else (None, None, None)
    some = tokens, counts, accept_coins, resample_coins
    place = PAPER.index(method.name)
    out, found = kernels.decide(place, lenience, q, p, q1, p1, pending, rule, FLOOR, *some, records)
    return _verdict(out, found, method), target


def _room(method: Method, distributions: Distributions) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """For score, threshold and deferred mass of a method's test."""
    if method.test is None or (sides := compared(method.test)) is None:
        return None, None, None
    room, scored = distributions.q.new_empty(3, *distributions.q.shape[:-1], 1), sides[0]
    return getattr(distributions, scored.of) if scored.name == "(v)" else room[0], room[1], room[2]


def _verdict(values: np.ndarray, found: np.ndarray, method: Method) -> Verdict:
    """From what compiled loops write."""
    test = (values[4, ..., 0], values[5, ..., 0]) if method.rule else None
    accepted, last, resampled = found
    return Verdict(values[3, ..., 0], accepted, last, resampled, list(values[:3]), test)


_SPEED = PAPER.index("speed")


def _anywhere(mass: Tensor) -> Tensor | None:
    """Tokens [..., m] that have mass [..., V] at any of the positions; None for all, where finding them would make the host wait."""
    if mass.device.type != "cpu":
        return None
    if kernels.serve(mass):
        return kernels.anywhere(mass)
    return mass.reshape(-1, mass.shape[-1]).any(0).nonzero()[:, 0].expand(*mass.shape[:-1], -1)


def _emitted(
    both: tuple[Tensor, Tensor],
    proposed: Tensor | None,
    own: tuple[Tensor, Tensor],
    rejected: Tensor,
    shares: Tensor,
    tokens: Tensor | None,
) -> Tensor:
    """What is drawn from the residuals max(0, share(x)·p - q), each as often as x is rejected.

    Two tokens of the same share have the same residual, so shares are gone through in order: a token v has part in the residuals
    of all shares above q(v)/p(v), and with the sums over those its mass is p(v)·Σ share·rate - q(v)·Σ rate, where rate is how
    often that share is met over the mass of its residual. A token that is never proposed has part in all of them.

    Args:
        both: q and p, [..., V] each.
        proposed: tokens [..., n] beside which q is 0; None for all.
        own: q and p of these, [..., n] each.
        rejected: how often each of these is proposed and rejected, [..., n].
        shares: of each of these, above 0, [..., n].
        tokens: whose mass is asked for, [..., m]; None for all.
    """
    met = _anywhere(rejected)
    if met is not None:
        rejected, shares = rejected.gather(-1, met), shares.gather(-1, met)
    shares, order = shares.double().sort(-1)
    rejected = rejected.double().gather(-1, order)

    def first_above(q: Tensor, p: Tensor) -> Tensor:
        return torch.searchsorted(shares, torch.where(p > 0, q.double() / p.double(), torch.inf), right=True)

    (q, p), (own_q, own_p) = both, own
    first, zero = first_above(own_q, own_p), q.new_zeros(())
    below = [
        torch.zeros(*q.shape[:-1], shares.shape[-1] + 1, dtype=torch.float64, device=q.device)
        .scatter_add_(-1, first, values.double())
        .cumsum(-1)[..., :-1]
        for values in (indicator(torch.gt, own_q, zero) * own_p, own_q)
    ]
    never = total((indicator(torch.le, q, zero) * p).double())
    mass = shares * (below[0] + never) - below[1]
    rate = torch.where((rejected > 0) & (mass > 0), rejected / mass, 0.0)
    above = [
        torch.nn.functional.pad(values.flip(-1).cumsum(-1).flip(-1), (0, 1))
        for values in (shares * rate, rate)
    ]

    def emitted(q: Tensor, p: Tensor, first: Tensor) -> Tensor:
        return (p * above[0].gather(-1, first) - q * above[1].gather(-1, first)).clamp_min_(0).to(q.dtype)

    if tokens is not None:
        asked = q.gather(-1, tokens), p.gather(-1, tokens)
        return emitted(*asked, first_above(*asked))
    if proposed is None:
        return emitted(q, p, first)
    return (p * above[0][..., :1]).to(q.dtype).scatter(-1, proposed, emitted(own_q, own_p, first))


def acceptance_and_residual(
    method: str,
    drafter_logits: Tensor,
    verifier_logits: Tensor,
    tokens: Tensor,
    *,
    lenience: Number,
    temperature: Number,
    rule: str = "",
) -> tuple[Tensor, Tensor]:
    """Acceptance probability of each draft token, and the distribution its rejection draws from.

    Args:
        method: one of `METHODS`.
        drafter_logits, verifier_logits: [..., V].
        tokens: the draft tokens, int64 [...].
        lenience, temperature: numbers, or tensors [...].
        rule: an expression, for the method own_rule.

    Returns:
        acceptance [...] in [0, 1]; residual [..., V], normalised (all zeros where its mass is zero; p for
        verifier_only, q for drafter_only).

    Raises:
        RequestError: unknown method; RuleError: an expression that is no rule.
    """
    distributions = Distributions(drafter_logits, verifier_logits, temperature)
    target = Target.of(get_method(method, rule), distributions, lenience)
    return target.acceptance(tokens), target.residual(tokens)


def target_distribution(
    method: str,
    drafter_logits: Tensor,
    verifier_logits: Tensor,
    *,
    lenience: Number,
    temperature: Number,
    rule: str = "",
) -> Tensor:
    """The distribution pi [..., V] that a method emits; arguments as for `acceptance_and_residual`."""
    distributions = Distributions(drafter_logits, verifier_logits, temperature)
    return Target.of(get_method(method, rule), distributions, lenience).pi()
