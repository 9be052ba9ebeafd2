"""The nine methods of "Faster Cascades via Speculative Decoding" (Narasimhan et al., ICLR 2025, arXiv 2405.19261).

Pure functions on tensors: q and p are the drafter's and the verifier's distributions at the request's
temperature, q1 and p1 the same logits at temperature 1, a the lenience (the paper's alpha). Deferral tests use
q1 and p1; mixing, and OPT's total variation, use q and p. Knows no model, no clock, no random number.

`METHODS` is the one registry: page, shell and docs read names, formulas, sentences and ranges from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import torch
from torch import Tensor

from specviz.errors import RequestError
from specviz.sampling import Number, at, column, distribution

FLOOR = 1e-10
"""Smallest denominator of `speed`'s acceptance ratio (as in the paper's published notebook)."""


class Beliefs:
    """What both models hold at the same positions: q, p, q1, p1, each [..., V], computed once and on demand."""

    def __init__(
        self,
        drafter_logits: Tensor,
        verifier_logits: Tensor,
        temperature: Number = 1.0,
        top_k: int | Tensor = 0,
        top_p: Number = 1.0,
        q: Tensor | None = None,
    ) -> None:
        """Hold logits [..., V]; `q`, if given, is the distribution the proposals were really drawn from."""
        self._drafter_logits, self._verifier_logits = drafter_logits, verifier_logits
        self._warp = (temperature, top_k, top_p)
        self._plain = not any(isinstance(w, Tensor) for w in self._warp) and self._warp == (1.0, 0, 1.0)
        if q is not None:
            self.__dict__["q"] = q

    @cached_property
    def q(self) -> Tensor:
        """Drafter at the request's temperature, truncated."""
        return distribution(self._drafter_logits, *self._warp)

    @cached_property
    def p(self) -> Tensor:
        """Verifier at the request's temperature, truncated."""
        return distribution(self._verifier_logits, *self._warp)

    @cached_property
    def q1(self) -> Tensor:
        """Drafter at temperature 1, never truncated."""
        return self.q if self._plain else distribution(self._drafter_logits)

    @cached_property
    def p1(self) -> Tensor:
        """Verifier at temperature 1, never truncated."""
        return self.p if self._plain else distribution(self._verifier_logits)


Rule = Callable[[Beliefs, Number], tuple[Tensor, Tensor]]
"""A deferral rule: (beliefs, a) -> score, threshold. Trust where score >= threshold.

The score is [..., 1] where the drafter is trusted as a whole, [..., V] where each token is judged."""


def _top(distribution: Tensor) -> Tensor:
    return distribution.amax(-1, keepdim=True)


def _as(setting: Number, like: Tensor) -> Tensor:
    """A setting as `like` counts, rounded only now: one number for all rows and one for each then do the same."""
    return torch.as_tensor(setting, dtype=like.dtype, device=like.device)


def _chow(b: Beliefs, a: Number) -> tuple[Tensor, Tensor]:  # equation 2
    return _top(b.q1), _as(1 - a, b.q1)


def _diff(b: Beliefs, a: Number) -> tuple[Tensor, Tensor]:  # equation 5
    return _top(b.q1), _top(b.p1) - _as(a, b.p1)


def _opt(b: Beliefs, a: Number) -> tuple[Tensor, Tensor]:  # equation 10
    return _top(b.q1), _top(b.p1) - _as(a, b.p1) * total_variation(b.q, b.p).unsqueeze(-1)


def _token_v1(b: Beliefs, a: Number) -> tuple[Tensor, Tensor]:  # equation 13
    return b.q1, _top(b.p1) - _as(a, b.p1)


def _token_v2(b: Beliefs, a: Number) -> tuple[Tensor, Tensor]:  # equation 14
    return b.p1, _top(b.p1) - _as(a, b.p1)


def _token_v3(b: Beliefs, a: Number) -> tuple[Tensor, Tensor]:  # equation 15
    return b.p1, _as(1 - a, b.p1) * _top(b.p1)


@dataclass(frozen=True)
class Method:
    """One method, as everybody speaks of it.

    `lenience_range` bounds what is valid, `offered_range` what a slider offers; both run from the strict end to
    the drafter's end. `score_label` and `threshold_label` name the two sides of the deferral test. Methods with
    no lenience have equal ends.
    """

    name: str
    title: str
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
        valid = isinstance(lenience, int | float) and math.isfinite(lenience) and low <= lenience <= high
        if not self.has_lenience:
            return (
                0.0
                if isinstance(lenience, int | float) and not math.isnan(lenience)
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
        raise RequestError(f"Lenience {lenience!r} does not fit {self.name}, which {right}.")


_CASCADES = (
    Method(
        name="cascade_chow",
        title="Chow",
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
                formula="π = q",
                sentence="The small model writes alone and the verifier never runs: the fastest text, and the baseline below.",
                verifies=False,
            ),
            Method(
                name="verifier_only",
                title="Verifier only",
                formula="π = p",
                sentence="The large model writes alone, one forward pass for each token: the baseline that speed-ups are measured against.",
                drafts=False,
            ),
            Method(
                name="speed",
                title="Speculative decoding",
                formula="accept with min(1, p(v) / ((1 − α)·q(v)))",
                sentence="At α = 0 the text is exactly the verifier's own, only sooner; above 0 it accepts more than it should and drifts towards the drafter.",
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
"""All nine methods by name, in the order they are shown."""


def get_method(name: str) -> Method:
    """Return the method of that name; RequestError names the known ones otherwise."""
    if name not in METHODS:
        raise RequestError(f"There is no method {name!r}; the methods are {', '.join(METHODS)}.")
    return METHODS[name]


def total_variation(q: Tensor, p: Tensor) -> Tensor:
    """TV(q, p) = sum of max(0, q - p) over the vocabulary: [..., V], [..., V] -> [...]."""
    return (q - p).clamp_min(0).sum(-1)


def _normalised(mass: Tensor) -> Tensor:
    """`mass` [..., V] scaled to sum 1; left at zero where there is none."""
    total = mass.sum(-1, keepdim=True)
    return mass / torch.where(total > 0, total, 1.0)


@dataclass(frozen=True)
class Ruling:
    """One method's view of a set of positions: all that is needed to decide, draw and explain.

    Built by `rule`. `guide` [..., V] is what proposals are judged by: the target distribution for every cascade
    (lossless decoding towards it), the verifier's own p for `speed`.
    """

    method: Method
    beliefs: Beliefs
    lenience: Number
    guide: Tensor
    score: Tensor | None
    threshold: Tensor | None

    def acceptance(self, tokens: Tensor) -> Tensor:
        """Probability [...] that the proposals `tokens` [...] are accepted."""
        if not self.method.verifies:
            return torch.ones_like(self.beliefs.q[..., 0])
        if not self.method.drafts:
            return torch.zeros_like(self.beliefs.p[..., 0])
        return self._ratio(at(self.guide, tokens), at(self.beliefs.q, tokens), self.lenience)

    def _ratio(self, guide: Tensor, q: Tensor, lenience: Number) -> Tensor:
        if self.method.name == "speed":
            return (guide / (_as(1 - lenience, q) * q).clamp_min(FLOOR)).clamp_max(1)
        return (guide / q.clamp_min(torch.finfo(q.dtype).tiny)).clamp_max(1)

    def residual(self) -> Tensor:
        """What a rejection draws from: [..., V], normalised; all zeros where nothing is left to draw."""
        if not self.method.verifies:
            return self.beliefs.q
        if not self.method.drafts:
            return self.beliefs.p
        return _normalised((self.guide - self.beliefs.q).clamp_min(0))

    def target(self) -> Tensor:
        """What the method emits: pi [..., V]."""
        if self.method.name != "speed":
            return self.guide
        q = self.beliefs.q
        accepted = q * self._ratio(self.guide, q, column(self.lenience))
        return accepted + (1 - accepted.sum(-1, keepdim=True)) * self.residual()

    def test(self, tokens: Tensor) -> tuple[Tensor, Tensor] | None:
        """The two sides of the deferral test for `tokens` [...]: score [...] and threshold [...], or None."""
        if self.score is None or self.threshold is None:
            return None
        token_wise = self.score.shape[-1] > 1
        score = at(self.score, tokens) if token_wise else self.score.squeeze(-1)
        return score, self.threshold.expand_as(self.score[..., :1]).squeeze(-1)


def rule(method: Method, beliefs: Beliefs, lenience: Number) -> Ruling:
    """Apply a method to beliefs [..., V]; `lenience` is a number or a tensor [...]."""
    if method.rule is None:
        guide = beliefs.p if method.verifies else beliefs.q
        return Ruling(method, beliefs, lenience, guide, None, None)
    score, threshold = method.rule(beliefs, column(lenience))
    trusted = score >= threshold
    if score.shape[-1] == 1:
        guide = torch.where(trusted, beliefs.q, beliefs.p)
    else:
        # The mass handed to p is summed over what is not trusted, so it is exactly zero where all is trusted.
        deferred = torch.where(trusted, 0.0, beliefs.q).sum(-1, keepdim=True)
        guide = torch.where(trusted, beliefs.q, 0.0) + beliefs.p * deferred
    return Ruling(method, beliefs, lenience, guide, score, threshold)


def acceptance_and_residual(
    method: str,
    drafter_logits: Tensor,
    verifier_logits: Tensor,
    tokens: Tensor,
    *,
    lenience: Number,
    temperature: Number,
) -> tuple[Tensor, Tensor]:
    """Acceptance probability of each proposal, and the distribution its rejection draws from.

    Args:
        method: one of `METHODS`.
        drafter_logits, verifier_logits: [..., V].
        tokens: the proposals, int64 [...].
        lenience, temperature: numbers, or tensors [...].

    Returns:
        acceptance [...] in [0, 1]; residual [..., V], normalised (all zeros where its mass is zero; p for
        verifier_only, q for drafter_only).

    Raises:
        RequestError: unknown method.
    """
    ruling = rule(get_method(method), Beliefs(drafter_logits, verifier_logits, temperature), lenience)
    return ruling.acceptance(tokens), ruling.residual()


def target_distribution(
    method: str, drafter_logits: Tensor, verifier_logits: Tensor, *, lenience: Number, temperature: Number
) -> Tensor:
    """The distribution pi [..., V] that a method emits; arguments as for `acceptance_and_residual`."""
    return rule(get_method(method), Beliefs(drafter_logits, verifier_logits, temperature), lenience).target()
