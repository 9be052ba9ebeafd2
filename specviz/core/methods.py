"""The nine methods of "Faster Cascades via Speculative Decoding" (Narasimhan et al., ICLR 2025, arXiv 2405.19261).

Pure functions on tensors: q and p are the drafter's and the verifier's distributions at the request's
temperature, q1 and p1 the same logits at temperature 1, a the lenience (the paper's alpha). Deferral tests use
q1 and p1; mixing, and OPT's total variation, use q and p. Knows no model, no clock, no random number.

`METHODS` is the one registry: page, shell and docs read names, formulas, sentences and ranges from it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import torch
from torch import Tensor

from specviz.core import kernels
from specviz.core.sampling import Number, Warp, at, column, distribution, draw, indicator, tensor, total
from specviz.errors import RequestError, quoted

FLOOR = 1e-10
"""Smallest denominator of `speed`'s acceptance ratio, as in the paper's published notebook."""


class Distributions:
    """Both models' distributions at the same positions: q, p, q1, p1, each [..., V], computed once and on demand."""

    def __init__(
        self,
        drafter_logits: Tensor | None,
        verifier_logits: Tensor | None,
        *warp: Number,
        **known: Tensor,
    ) -> None:
        """From logits [..., V] and a `Warp`; `known`, by name, is what was already computed from them.

        Logits of which nothing is left to compute need not be given.
        """
        self._drafter_logits, self._verifier_logits = drafter_logits, verifier_logits
        self._warp = Warp(*warp)
        self._plain = not any(isinstance(each, Tensor) for each in warp) and self._warp == Warp()
        self.__dict__ |= known

    @cached_property
    def q(self) -> Tensor:
        """Drafter at the request's temperature, truncated."""
        return distribution(self._given(self._drafter_logits), *self._warp)

    @cached_property
    def p(self) -> Tensor:
        """Verifier at the request's temperature, truncated."""
        return distribution(self._given(self._verifier_logits), *self._warp)

    @cached_property
    def q1(self) -> Tensor:
        """Drafter at temperature 1, never truncated."""
        return self.q if self._plain else distribution(self._given(self._drafter_logits))

    @cached_property
    def p1(self) -> Tensor:
        """Verifier at temperature 1, never truncated."""
        return self.p if self._plain else distribution(self._given(self._verifier_logits))

    def _given(self, logits: Tensor | None) -> Tensor:
        assert logits is not None
        return logits

    @cached_property
    def max_q1(self) -> Tensor:
        """max q1 [..., 1]: the drafter's confidence."""
        return self.q1.amax(-1, keepdim=True)

    @cached_property
    def max_p1(self) -> Tensor:
        """max p1 [..., 1]: the verifier's confidence."""
        return self.p1.amax(-1, keepdim=True)

    @cached_property
    def total_variation(self) -> Tensor:
        """TV(q, p) [..., 1]."""
        return total_variation(self.q, self.p).unsqueeze(-1)

    def select(self, places: Places) -> Distributions:
        """These distributions at some positions only: [n, V]. What was not computed before is computed for these alone."""
        drafter_logits, verifier_logits = (
            None if each is None else _select(each, places)
            for each in (self._drafter_logits, self._verifier_logits)
        )
        known = {name: _select(self.__dict__[name], places) for name in _COMPUTED & self.__dict__.keys()}
        known |= {"q": _select(self.q, places), "p": _select(self.p, places)}
        selected = Distributions(drafter_logits, verifier_logits, **known)
        selected._plain = self._plain
        return selected


_COMPUTED = {"q1", "p1", "max_q1", "max_p1", "total_variation"}
Places = Tensor | slice
"""Some of all positions, flattened: indices [n], or a run of them, which is selected without a copy."""


def places(indices: Tensor) -> Places:
    """`indices` [n], as a run where they are one and reading them is free (on a CPU)."""
    if indices.device.type != "cpu" or not len(indices):
        return indices
    each = indices.tolist()
    run = slice(each[0], each[0] + len(each))
    return run if each == list(range(run.start, run.stop)) else indices


def _select(values: Tensor, places: Places) -> Tensor:
    return values.reshape(-1, values.shape[-1])[places]


Rule = Callable[[Distributions, Number], tuple[Tensor, Tensor]]
"""A deferral rule: (distributions, a) -> score, threshold. Trust where score >= threshold.

The score is [..., 1] where the drafter is trusted as a whole, [..., V] where each token is judged."""


def _as(setting: Number, like: Tensor) -> Tensor:
    """A setting in the dtype and on the device of `like`."""
    return tensor(setting, like.device, like.dtype)


def _chow(b: Distributions, a: Number) -> tuple[Tensor, Tensor]:  # equation 2
    return b.max_q1, _as(1 - a, b.q1)


def _diff(b: Distributions, a: Number) -> tuple[Tensor, Tensor]:  # equation 5
    return b.max_q1, b.max_p1 - _as(a, b.p1)


def _opt(b: Distributions, a: Number) -> tuple[Tensor, Tensor]:  # equation 10
    return b.max_q1, b.max_p1 - _as(a, b.p1) * b.total_variation


def _token_v1(b: Distributions, a: Number) -> tuple[Tensor, Tensor]:  # equation 13
    return b.q1, b.max_p1 - _as(a, b.p1)


def _token_v2(b: Distributions, a: Number) -> tuple[Tensor, Tensor]:  # equation 14
    return b.p1, b.max_p1 - _as(a, b.p1)


def _token_v3(b: Distributions, a: Number) -> tuple[Tensor, Tensor]:  # equation 15
    return b.p1, _as(1 - a, b.p1) * b.max_p1


@dataclass(frozen=True)
class Method:
    """One method of the registry: its rule, and how it is named, written and explained.

    `title` is short, for tables and figures; `label` says what the method does beside the paper's name, for lists to choose
    from; `group` is one of `GROUPS`. `lenience_range` bounds what is valid, `offered_range` what a slider offers; both run from the strict end to
    the drafter's end. `score_label` and `threshold_label` name the two sides of the deferral test. Methods with
    no lenience have equal ends.
    """

    name: str
    title: str
    label: str
    group: str
    formula: str
    sentence: str
    lenience_range: tuple[float, float] = (0.0, 0.0)
    offered_range: tuple[float, float] = (0.0, 0.0)
    default_lenience: float = 0.0
    strict_end: str = ""
    drafter_end: str = ""
    score_label: str | None = None
    threshold_label: str | None = None
    rule: Rule | None = None
    drafts: bool = True
    verifies: bool = True

    @property
    def has_lenience(self) -> bool:
        """Whether lenience changes anything."""
        return self.offered_range[0] < self.offered_range[1]

    def check_lenience(self, lenience: float) -> float:
        """Return `lenience` as a float, or raise RequestError where it is not a number of the valid range."""
        low, high = self.lenience_range
        valid = isinstance(lenience, int | float) and abs(lenience) <= sys.float_info.max
        valid = valid and low <= lenience <= high
        if not self.has_lenience:
            return (
                0.0
                if isinstance(lenience, int | float) and lenience == lenience  # all but NaN
                else self._reject(lenience)
            )
        return float(lenience) if valid else self._reject(lenience)

    def _reject(self, lenience: object) -> float:
        low, high = self.lenience_range
        if not self.has_lenience:
            right = "takes no lenience: leave it out"
        elif math.isfinite(low):
            right = f"takes a number from {low:g} (strict) to {high:g} (the drafter's)"
        else:
            right = "takes any finite number"
        raise RequestError(f"Lenience {quoted(lenience)} does not fit {self.name}, which {right}.")


_BASELINES, _SPECULATIVE = "Baselines", "Speculative decoding"
_DEFERRAL, _TOKEN = "Deferral rules, for the drafter as a whole", "Token rules, for each token by itself"
GROUPS = (_BASELINES, _SPECULATIVE, _DEFERRAL, _TOKEN)
"""The groups of methods, in the order they are shown."""

_CASCADES = (
    Method(
        name="cascade_chow",
        title="Chow",
        label="Deferral rule Chow: trust a confident drafter",
        group=_DEFERRAL,
        formula="max q₁ ≥ 1 − α",
        sentence="Trusts the drafter wherever the drafter itself is confident enough, whatever the verifier thinks.",
        lenience_range=(0.0, 1.0),
        offered_range=(0.0, 1.0),
        default_lenience=0.5,
        strict_end="0: trust only certainty",
        drafter_end="1: always trust",
        score_label="max q₁",
        threshold_label="1 − α",
        rule=_chow,
    ),
    Method(
        name="cascade_diff",
        title="Diff",
        label="Deferral rule Diff: trust a drafter nearly as confident as the verifier",
        group=_DEFERRAL,
        formula="max q₁ ≥ max p₁ − α",
        sentence="Trusts the drafter wherever its confidence falls short of the verifier's by at most α.",
        lenience_range=(-1.0, 1.0),
        offered_range=(-1.0, 1.0),
        default_lenience=0.1,
        strict_end="−1: never trust",
        drafter_end="1: always trust",
        score_label="max q₁",
        threshold_label="max p₁ − α",
        rule=_diff,
    ),
    Method(
        name="cascade_opt",
        title="OPT",
        label="Deferral rule OPT: trust the drafter where that saves rejections",
        group=_DEFERRAL,
        formula="max q₁ ≥ max p₁ − α·TV(q, p)",
        sentence="Like Diff, with an allowance that grows with the disagreement of the two: exactly where accepting saves rejections.",
        lenience_range=(-math.inf, math.inf),
        offered_range=(-5.0, 5.0),
        default_lenience=0.3,
        strict_end="−5: hardly ever trust",
        drafter_end="5: nearly always trust",
        score_label="max q₁",
        threshold_label="max p₁ − α·TV",
        rule=_opt,
    ),
    Method(
        name="cascade_tokenV1",
        title="Token V1",
        label="Token rule V1: keep what the drafter finds likely enough",
        group=_TOKEN,
        formula="q₁(v) ≥ max p₁ − α",
        sentence="Trusts each proposed token whose drafter probability comes within α of the verifier's best.",
        lenience_range=(-1.0, 1.0),
        offered_range=(-1.0, 1.0),
        default_lenience=0.3,
        strict_end="−1: never trust",
        drafter_end="1: always trust",
        score_label="q₁(v)",
        threshold_label="max p₁ − α",
        rule=_token_v1,
    ),
    Method(
        name="cascade_tokenV2",
        title="Token V2",
        label="Token rule V2: keep what comes close to the verifier's favourite",
        group=_TOKEN,
        formula="p₁(v) ≥ max p₁ − α",
        sentence="Trusts each proposed token whose verifier probability comes within α of the verifier's best.",
        lenience_range=(-1.0, 1.0),
        offered_range=(-1.0, 1.0),
        default_lenience=0.2,
        strict_end="−1: never trust",
        drafter_end="1: always trust",
        score_label="p₁(v)",
        threshold_label="max p₁ − α",
        rule=_token_v2,
    ),
    Method(
        name="cascade_tokenV3",
        title="Token V3",
        label="Token rule V3: keep what the verifier finds good enough",
        group=_TOKEN,
        formula="p₁(v) ≥ (1 − α)·max p₁",
        sentence="Trusts each proposed token that the verifier finds at least 1 − α times as likely as its own favourite.",
        lenience_range=(0.0, 1.0),
        offered_range=(0.0, 1.0),
        default_lenience=0.5,
        strict_end="0: trust only the verifier's favourite",
        drafter_end="1: always trust",
        score_label="p₁(v)",
        threshold_label="(1 − α)·max p₁",
        rule=_token_v3,
    ),
)

METHODS: MappingProxyType[str, Method] = MappingProxyType(
    {
        method.name: method
        for method in (
            Method(
                name="drafter_only",
                title="Drafter only",
                label="Drafter only (baseline: nobody checks)",
                group=_BASELINES,
                formula="π = q",
                sentence="The small model writes alone and the verifier never runs: the fastest text, and the baseline below.",
                verifies=False,
            ),
            Method(
                name="verifier_only",
                title="Verifier only",
                label="Verifier only (baseline: nothing is drafted)",
                group=_BASELINES,
                formula="π = p",
                sentence="The large model writes alone, one forward pass for each token: the baseline that speed-ups are measured against.",
                drafts=False,
            ),
            Method(
                name="speed",
                title="Speculative decoding",
                label="Speculative decoding (lossless at α = 0)",
                group=_SPECULATIVE,
                formula="accept with min(1, p(v) / ((1 − α)·q(v)))",
                sentence="At α = 0 lossless: the text has exactly the verifier's distribution, in fewer calls of the verifier, and at temperature 0 it is the verifier's very text. Above 0 it accepts more and drifts towards the drafter.",
                lenience_range=(0.0, 1.0),
                offered_range=(0.0, 1.0),
                default_lenience=0.0,
                strict_end="0: lossless",
                drafter_end="1: accept nearly everything",
            ),
            *_CASCADES,
        )
    }
)
"""All nine methods by name, in the order they are shown: group by group."""


def get_method(name: str) -> Method:
    """Return the method of that name; RequestError names the known ones otherwise."""
    if not isinstance(name, str) or name not in METHODS:
        raise RequestError(f"There is no method {quoted(name)}; the methods are {', '.join(METHODS)}.")
    return METHODS[name]


def total_variation(q: Tensor, p: Tensor) -> Tensor:
    """TV(q, p) = sum of max(0, q - p) over the vocabulary: [..., V], [..., V] -> [...]."""
    return _excess(q, p).squeeze(-1)


def _excess(left: Tensor, right: Tensor) -> Tensor:
    """The sum of max(0, left - right) over the vocabulary: [..., 1]."""
    if kernels.serve(left):
        return kernels.excess(left, right)
    return total((left - right).clamp_min_(0))


def _mass_below(score: Tensor, threshold: Tensor, weights: Tensor) -> Tensor:
    """The weight of tokens whose score is below a threshold [..., 1]: [..., 1]; exactly zero where there are none."""
    if kernels.serve(weights):
        return kernels.mass_below(score, threshold, weights)
    return total(indicator(torch.lt, score, threshold) * weights)


def _normalised(mass: Tensor) -> Tensor:
    """`mass` [..., V] scaled to sum 1; all zeros stay zeros."""
    whole = total(mass)
    return mass / torch.where(whole > 0, whole, 1.0)


@dataclass(frozen=True)
class Target:
    """What a method decodes towards at a set of positions, and with it acceptance and residual.

    Built by `Target.of`. A cascade emits pi(v) = q(v)·1[v trusted] + p(v)·deferred and decodes losslessly towards it:
    accept v with min(1, pi(v)/q(v)), otherwise draw from the residual max(0, pi - q), normalised. `deferred` [..., 1] is the
    mass of q on tokens that are not trusted, which goes to p. `speed` accepts by a ratio of its own and keeps the
    residual of p. Values of single tokens need no pass over the vocabulary, except for pi of `speed`.
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
        if kernels.serve(self.distributions.q):
            return self._compiled_at(tokens, False)[3]
        return self._acceptance(*self._values(tokens.unsqueeze(-1))).squeeze(-1)

    def pi(self, tokens: Tensor | None = None) -> Tensor:
        """The distribution the method emits: pi [..., V], or pi(v) [...] of `tokens` [...] alone."""
        if tokens is not None:
            return self.probabilities(tokens.unsqueeze(-1))[2].squeeze(-1)
        q, p, score = self._values()
        if not kernels.serve(q):
            return self._pi(q, p, score)
        if self.method.name == "speed":
            return kernels.speed(q, p, 1 - column(self.lenience), FLOOR)
        return q if not self.method.verifies else kernels.mixture(q, p, score, self.threshold, self.deferred)

    def probabilities(self, tokens: Tensor, where: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """q, p and pi of `tokens` [..., m], several at each position: [..., m] each. Of pi, only positions `where` [...] count."""
        if self.method.verifies and kernels.serve(self.distributions.q):
            q, p, pi, _ = self._compiled_at(tokens, True if where is None else where)
            return q, p, pi
        values = self._values(tokens)
        return *values[:2], self._pi(*values)

    def _compiled_at(self, tokens: Tensor, where: bool | Tensor) -> Tensor:
        """q, p, pi and acceptance [4, ..., m] of `tokens` [..., m]; pi of `speed` only `where` [...]. m may be left out."""
        q, p = self.distributions.q, self.distributions.p
        if self.method.name == "speed":
            return kernels.speed_at(q, p, 1 - column(self.lenience), FLOOR, where, tokens)
        return kernels.cascade_at(q, p, self.score, self.threshold, self.deferred, tokens)

    def _pi(self, q: Tensor, p: Tensor, score: Tensor | None) -> Tensor:
        if self.method.name == "speed":
            return q * self._acceptance(q, p, None) + self._kappa() * (p - q).clamp_min_(0)
        return self._mixture(q, p, score)

    def residual(self) -> Tensor:
        """The distribution a rejection draws from: [..., V], normalised; all zeros where it has no mass."""
        q, p, score = self._values()
        if not self.method.drafts or not self.method.verifies:
            return p if self.method.verifies else q
        return _normalised((self._mixture(q, p, score) - q).clamp_min_(0))

    def draw_replacement(self, last: Tensor, uniform: Tensor) -> Tensor:
        """What a rejection at step `last` [B] emits [B], drawn at the uniform of that step; `uniform` is [B, K] or longer."""
        q, p, score = self._values()
        if kernels.serve(q):
            return kernels.draw_residual(q, p, score, self.threshold, self.deferred, last, uniform)
        return draw(self.at_steps(last).replacement(), at(uniform, last))

    def at_steps(self, steps: Tensor) -> Target:
        """The target at one of the K positions of each sequence: `steps` [B] -> [B, V]."""
        count = self.distributions.q.shape[1]
        return self.select(torch.arange(len(steps), device=steps.device) * count + steps)

    def replacement(self) -> Tensor:
        """What a rejection's draw weighs tokens by [..., V]: the residual, not normalised, since a draw scales anyway; pi
        where it has no mass, which only rounding can lead to.
        """
        q, p, score = self._values()
        mixture = self._mixture(q, p, score)
        residual = (mixture - q).clamp_min_(0)
        return residual + mixture * (total(residual) <= 0)

    def deferral_test(self, tokens: Tensor) -> tuple[Tensor, Tensor] | None:
        """Score [...] and threshold [...] of `tokens` [...]: trusted where score >= threshold. None without a rule."""
        if self.score is None or self.threshold is None:
            return None
        score = self.score.squeeze(-1) if self.score.shape[-1] == 1 else at(self.score, tokens)
        return score, self.threshold.squeeze(-1)

    def select(self, indices: Tensor) -> Target:
        """The target at some positions only: `indices` [n] into all positions, flattened."""
        lead, some = self.distributions.q.shape[:-1], places(indices)

        def select(values: Tensor | None) -> Tensor | None:
            return None if values is None else _select(values.expand(*lead, -1), some)

        lenience = self.lenience
        if isinstance(lenience, Tensor):
            lenience = _select(lenience.unsqueeze(-1).expand(*lead, -1), some).squeeze(-1)
        parts = (select(self.score), select(self.threshold), select(self.deferred))
        return Target(self.method, self.distributions.select(some), lenience, *parts)

    def _values(self, tokens: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor | None]:
        """q, p and score: of the whole vocabulary, or of `tokens` [..., m] alone."""
        q, p, score = self.distributions.q, self.distributions.p, self.score
        if tokens is None:
            return q, p, score
        if score is not None and self.judges_tokens:
            score = score.gather(-1, tokens)
        return q.gather(-1, tokens), p.gather(-1, tokens), score

    def _mixture(self, q: Tensor, p: Tensor, score: Tensor | None) -> Tensor:
        if score is None or self.threshold is None or self.deferred is None:
            return p if self.method.verifies else q  # for `speed` p, towards which its residual leads
        return indicator(torch.ge, score, self.threshold) * q + p * self.deferred

    def _acceptance(self, q: Tensor, p: Tensor, score: Tensor | None) -> Tensor:
        if self.method.name == "speed":
            return (p / (_as(1 - column(self.lenience), q) * q).clamp_min_(FLOOR)).clamp_max_(1)
        return (self._mixture(q, p, score) / q.clamp_min(torch.finfo(q.dtype).tiny)).clamp_max_(1)

    def _kappa(self) -> Tensor:
        """The share of max(0, p - q) that all rejections of `speed` together emit: [..., 1]."""
        q, p = self.distributions.q, self.distributions.p
        excess, rejected = _excess(p, q), 1 - total(self._acceptance(q, p, None).mul_(q))
        return rejected / torch.where(excess > 0, excess, 1.0)


def acceptance_and_residual(
    method: str,
    drafter_logits: Tensor,
    verifier_logits: Tensor,
    tokens: Tensor,
    *,
    lenience: Number,
    temperature: Number,
) -> tuple[Tensor, Tensor]:
    """Acceptance probability of each draft token, and the distribution its rejection draws from.

    Args:
        method: one of `METHODS`.
        drafter_logits, verifier_logits: [..., V].
        tokens: the draft tokens, int64 [...].
        lenience, temperature: numbers, or tensors [...].

    Returns:
        acceptance [...] in [0, 1]; residual [..., V], normalised (all zeros where its mass is zero; p for
        verifier_only, q for drafter_only).

    Raises:
        RequestError: unknown method.
    """
    distributions = Distributions(drafter_logits, verifier_logits, temperature)
    target = Target.of(get_method(method), distributions, lenience)
    return target.acceptance(tokens), target.residual()


def target_distribution(
    method: str, drafter_logits: Tensor, verifier_logits: Tensor, *, lenience: Number, temperature: Number
) -> Tensor:
    """The distribution pi [..., V] that a method emits; arguments as for `acceptance_and_residual`."""
    distributions = Distributions(drafter_logits, verifier_logits, temperature)
    return Target.of(get_method(method), distributions, lenience).pi()
