"""What a method computes from two distributions: the target pi, the acceptance of draft tokens, the residual, and the verdict.

The distributions' backend makes most passes over the vocabulary. Knows no model, no clock, no random number.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from specviz.core import gumbel
from specviz.core.backend import backend_for, indicator, mixture, total
from specviz.core.distributions import Distributions, Positions
from specviz.core.expression.solve import at_lenience
from specviz.core.expression.syntax import parse_number
from specviz.core.expression.tensors import Compiled, Rule, compile_number, compile_rule, finite_rule
from specviz.core.method import LOSSLESS, Method
from specviz.core.methods import METHODS
from specviz.core.sampling import Number, SamplingParameters, at, column, of_tokens, steps


@lru_cache(512)
def rule_of(method: Method) -> Rule | None:
    """The deferral test of a method; None without one."""
    if method.function is not None:
        return finite_rule(method.function)
    return compile_rule(method.trees["test"]) if method.expression else None


@lru_cache(512)
def _compiled(method: Method, name: str) -> Compiled:
    return compile_number(method.trees[name])


@dataclass(frozen=True)
class Verdict:
    """The decision about draft tokens, given their uniforms.

    Attributes:
        acceptance: the acceptance probability of each draft token, [B, K].
        accepted: number of tokens accepted before the first rejection, [B].
        last: index of the last examined token, [B].
        resampled: replacement of the first rejected token, [B]; meaningless where no token was rejected.
    """

    acceptance: Tensor
    accepted: Tensor
    last: Tensor
    resampled: Tensor


class Deferral(NamedTuple):
    """The result of a deferral rule at some positions: a token is trusted where score >= threshold.

    Attributes:
        score: [..., V] where each token is judged, [..., 1] where the drafter is trusted as a whole.
        threshold: [..., 1].
        deferred: the mass of q on tokens that are not trusted, [..., 1].
    """

    score: Tensor
    threshold: Tensor
    deferred: Tensor

    @property
    def judges_tokens(self) -> bool:
        """Whether the rule trusts token by token."""
        return self.score.shape[-1] > 1


@dataclass(frozen=True)
class Target:
    """The distribution that a method decodes towards at some positions, with acceptance and residual. Built by `Target.of`.

    A deferral rule emits pi(v) = q(v)·1[v trusted] + p(v)·deferred and decodes losslessly towards pi: accept v with probability
    min(1, pi(v)/q(v)), otherwise draw from the residual max(0, pi - q), normalised. Methods with a `ratio` accept v with probability
    min(1, ratio), otherwise draw from max(0, share·p - q); pi is the distribution that results. Values of single tokens need no pass
    over the vocabulary, except pi of a ratio that is not lossless.
    """

    method: Method
    distributions: Distributions
    lenience: Number
    deferral: Deferral | None = None

    @staticmethod
    def of(method: Method, distributions: Distributions, lenience: Number) -> Target:
        """Apply a method to distributions [..., V]; `lenience` is a number or a tensor [...]."""
        rule = rule_of(method)
        if rule is None:
            return Target(method, distributions, lenience)
        score, threshold = rule(distributions, column(lenience))
        threshold = threshold.expand(*score.shape[:-1], 1)
        if score.shape[-1] == 1:
            deferred = indicator(torch.lt, score, threshold)
        else:
            deferred = distributions.backend.mass_below(score, threshold, distributions.q)
        return Target(method, distributions, lenience, Deferral(score, threshold, deferred))

    @property
    def _own(self) -> Tensor:
        """p, or q if only the drafter runs: [..., V]."""
        return self.distributions.p if self.method.verifies else self.distributions.q

    # ---- acceptance and pi

    def acceptance(self, tokens: Tensor) -> Tensor:
        """Probability [...] that draft tokens `tokens` [...] are accepted."""
        some = tokens.unsqueeze(-1)
        if not (self.method.drafts and self.method.verifies):
            return torch.full_like(at(self._own, tokens), not self.method.verifies)
        if self.method.shares_noise:
            return self._coupling.acceptance(tokens).to(self.distributions.q.dtype)
        if self.method.ratio:
            return self._by_ratio(some).squeeze(-1)
        q = self.distributions.q.gather(-1, some)
        return (self.pi(some) / q.clamp_min(torch.finfo(q.dtype).tiny)).clamp_max_(1).squeeze(-1)

    def _by_ratio(self, tokens: Tensor | None) -> Tensor:
        """The method's ratio, clamped to [0, 1], for `tokens` [..., m] or, if None, for the whole vocabulary [..., V]."""
        return self._numbers("ratio", tokens).nan_to_num(0.0).clamp(0, 1)

    def pi(self, tokens: Tensor | None = None) -> Tensor:
        """The distribution the method emits: pi [..., V], or pi(v) of `tokens` [..., m] alone."""
        if not (self.method.drafts and self.method.verifies) or self.is_lossless:
            return of_tokens(self._own, tokens)
        q, p = of_tokens(self.distributions.q, tokens), of_tokens(self.distributions.p, tokens)
        if self.deferral is None:
            return q * self._by_ratio(tokens) + self._resampled(q, p)
        score, threshold, deferred = self.deferral
        score = of_tokens(score, tokens) if self.deferral.judges_tokens else score
        return mixture(q, p, score, threshold, deferred)

    @cached_property
    def is_lossless(self) -> bool:
        """Whether the method is known to be lossless at this lenience: pi is p."""
        known = not isinstance(self.lenience, Tensor) and accepts_losslessly(self.method, self.lenience)
        return self.method.matches or known

    def _resampled(self, q: Tensor, p: Tensor) -> Tensor:
        """Probability that a token is emitted as the replacement of a rejected one, for some tokens [..., m], given their q and p."""
        if not self.method.share:
            return self._rejected_per_residual * (p - q).clamp_min(0)
        shares, weighted, rates = self._residuals
        first = _first_above(shares, q, p)
        drawn = p * weighted.gather(-1, first) - q * rates.gather(-1, first)
        return drawn.clamp_min_(0).to(q.dtype)

    @cached_property
    def _rejected_per_residual(self) -> Tensor:
        """The probability of a rejection, divided by the mass of the residual max(0, p - q): [..., 1]."""
        q, p, backend = self.distributions.q, self.distributions.p, self.distributions.backend
        lack, accepted = backend.excess(p, q), self._by_ratio(None).mul_(q)
        return backend.excess(q, accepted) / torch.where(lack > 0, lack, 1.0)

    @cached_property
    def _residuals(self) -> tuple[Tensor, Tensor, Tensor]:
        """Sums over the residuals max(0, share(x)·p - q) of a method whose residual depends on the rejected token x.

        Shares are sorted, since a token v has mass in the residuals of all shares above q(v)/p(v). Summed over these residuals, its mass is
        p(v)·Σ share·rate - q(v)·Σ rate, where the rate of a share is the probability that its token is rejected, divided by the mass of
        its residual.

        Returns:
            The shares, ascending, float64 [..., n]; suffix sums of share·rate and of rate, ending in 0: float64 [..., n + 1].
        """
        q, p, shares = self.distributions.q, self.distributions.p, self._numbers("share", None)
        rejected = (q - self._by_ratio(None).mul_(q)).clamp_min_(0)
        # Most tokens are never rejected. Finding the others on a GPU would make the host wait.
        if rejected.is_cpu:
            met = rejected.reshape(-1, rejected.shape[-1]).any(0).nonzero()[:, 0]
            rejected, shares = rejected[..., met], shares[..., met]
        shares, order = shares.double().sort(-1)
        rejected = rejected.double().gather(-1, order)
        first = _first_above(shares, q, p)
        zero = shares.new_zeros(*shares.shape[:-1], shares.shape[-1] + 1)
        # Sums of q and of p over the tokens with mass in each share's residual.
        below_q, below_p = (
            zero.scatter_add(-1, first, each.double()).cumsum(-1)[..., :-1] for each in (q, p)
        )
        mass = shares * below_p - below_q
        rate = torch.where((rejected > 0) & (mass > 0), rejected / mass, 0.0)
        return shares, _sums_from(shares * rate), _sums_from(rate)

    def _numbers(self, name: str, tokens: Tensor | None) -> Tensor:
        """The method's "ratio" or "share" of `tokens` [..., m], or of the whole vocabulary [..., V]."""
        return _compiled(self.method, name)(self.distributions, column(self.lenience), tokens)

    # ---- the residual

    def _mixture(self, rejected: Tensor) -> Tensor:
        """The weights w [..., V] such that max(0, w - q) is the residual of `rejected` [...]."""
        q, p = self.distributions.q, self.distributions.p
        if self.deferral is not None:
            return mixture(q, p, *self.deferral)
        return p * self._numbers("share", rejected.unsqueeze(-1)) if self.method.share else p

    def residual(self, rejected: Tensor) -> Tensor:
        """The distribution [..., V] from which the replacement of `rejected` [...] is drawn; all zeros where the residual has no mass.

        For a method that runs one model alone: the distribution of this model.
        """
        if not (self.method.drafts and self.method.verifies):
            return self.pi()
        q = self.distributions.q
        if self.method.shares_noise:
            mass = self._coupling.instead(rejected).to(q.dtype)
        elif self.method.matches:
            mass = self.distributions.p.scatter(-1, rejected.unsqueeze(-1), 0.0)
        else:
            mass = (self._mixture(rejected) - q).clamp_min_(0)
        whole = total(mass)
        return mass / torch.where(whole > 0, whole, 1.0)

    def draw_replacement(self, rejected: Tensor, uniform: Tensor) -> Tensor:
        """Replacements [...] of `rejected` tokens [...], drawn from the residual at `uniform` [...].

        Drawn from the weights of `_mixture` if the residual has no mass, which only rounding can cause.
        """
        both = self.distributions
        return both.backend.draw_residual(self._mixture(rejected), both.q, uniform)

    # ---- the verdict

    def decide(
        self,
        tokens: Tensor,
        counts: Tensor,
        accept_uniforms: Tensor,
        resample_uniforms: Tensor,
        noise: Tensor | None = None,
    ) -> Verdict:
        """Accept draft tokens up to the first whose uniform is not below its acceptance probability, and replace that token.

        The paper's algorithm 4, without a bonus token. A method that `matches` accepts draft tokens that equal the verifier's own draws.

        Args:
            tokens: draft tokens at the positions of the distributions, [B, K].
            counts: number of draft tokens of each sequence, [B], at least 1.
            accept_uniforms, resample_uniforms: uniforms of these positions, float64 [B, K].
            noise: exponentials of these positions, [B, K, V], for a method that `shares_noise`.
        """
        acceptance, count = self.acceptance(tokens), tokens.shape[1]
        drawn = self.drawn(resample_uniforms, noise) if self.method.matches else None
        passed = accept_uniforms < acceptance if drawn is None else drawn == tokens
        passed &= steps(count, tokens.device) < counts[:, None]
        accepted = passed.cumprod(-1).sum(-1)
        last = torch.minimum(accepted, counts - 1)
        if drawn is None:
            where = steps(len(last), last.device), last
            resampled = self.select(where).draw_replacement(tokens[where], resample_uniforms[where])
        else:
            resampled = at(drawn, last)
        return Verdict(acceptance, accepted, last, resampled)

    def drawn(self, uniform: Tensor, noise: Tensor | None) -> Tensor:
        """The tokens [B, K] that the verifier draws from p: with `noise` [B, K, V] or, without noise, with `uniform` [B, K]."""
        p = self.distributions.p
        return self.distributions.backend.draw(p, uniform) if noise is None else gumbel.draw(p, noise)

    def matching_uniforms(
        self, tokens: Tensor, accepted: Tensor, uniform: Tensor, noise: Tensor | None
    ) -> Tensor:
        """Uniforms [B, K] of a method that `matches`: below `acceptance` exactly for accepted tokens.

        `accepted` [B] is the number of accepted tokens. Without noise, a uniform is (`uniform` − CDF of p before the token) mod 1.
        """
        if noise is not None:
            result = self._coupling.uniforms(tokens, noise)
        else:
            p = self.distributions.p.double()
            result = (uniform - (at(p.cumsum(-1), tokens) - at(p, tokens))) % 1.0
        # Rounding must not contradict the decision.
        is_accepted = steps(tokens.shape[1], tokens.device) < accepted[:, None]
        acceptance = self.acceptance(tokens)
        below = torch.nextafter(acceptance, torch.zeros_like(acceptance))
        return torch.where(is_accepted, result.minimum(below.double()), result.maximum(acceptance.double()))

    @cached_property
    def _coupling(self) -> gumbel.Coupling:
        return gumbel.Coupling(self.distributions.q, self.distributions.p)

    def deferral_test(self, tokens: Tensor) -> tuple[Tensor, Tensor] | None:
        """Score [...] and threshold [...] of `tokens` [...]: trusted where score >= threshold. None without a rule."""
        if self.deferral is None:
            return None
        score, threshold, _ = self.deferral
        return at(score, tokens) if self.deferral.judges_tokens else score.squeeze(-1), threshold.squeeze(-1)

    def select(self, where: Positions) -> Target:
        """The target at some positions only, [n]; the rule is applied to them anew."""
        lenience = self.lenience
        if isinstance(lenience, Tensor):
            lenience = lenience.expand(self._own.shape[:-1])[where]
        return Target.of(self.method, self.distributions.select(where), lenience)


def _first_above(shares: Tensor, q: Tensor, p: Tensor) -> Tensor:
    """Index [..., m] of the first of `shares` [..., n], ascending, that is above q/p [..., m]."""
    bound = torch.where(p > 0, q.double() / p.double(), torch.inf)
    return torch.searchsorted(shares, bound, right=True)


def _sums_from(values: Tensor) -> Tensor:
    """Suffix sums of `values` [..., n], ending in 0: [..., n + 1]."""
    return torch.nn.functional.pad(values.flip(-1).cumsum(-1).flip(-1), (0, 1))


_LOSSLESS = parse_number("p(v) / q(v)"), at_lenience(METHODS[LOSSLESS].trees["ratio"], 0)


@lru_cache(1024)
def accepts_losslessly(method: Method, lenience: float) -> bool:
    """Whether a method's ratio is p(v) / q(v) at a lenience. Recording pi then takes no pass over the vocabulary."""
    is_plain = bool(method.ratio) and not method.share
    return is_plain and at_lenience(method.trees["ratio"], lenience) in _LOSSLESS


def target_under(
    method: Method,
    drafter_logits: Tensor,
    verifier_logits: Tensor,
    asked: SamplingParameters,
    lenience: Number,
    greedy_drafts: bool = False,
) -> Target:
    """The target of a method, computed from logits, without a batch.

    Args:
        drafter_logits, verifier_logits: [..., V].
        asked: the request's sampling parameters, each a number or a tensor [...].
        lenience: a number or a tensor [...].
        greedy_drafts: whether the drafter always proposes its most probable token, so that q is one-hot.
    """
    distributions = Distributions(
        drafter_logits.detach(),
        verifier_logits.detach(),
        *method.sampling(asked, lenience),
        backend=backend_for(drafter_logits.device, drafter_logits.dtype, verifier_logits.dtype),
        greedy_drafts=greedy_drafts or method.greedy_drafts,
    )
    return Target.of(method, distributions, lenience)
