"""Six rules of speculative decoding as engines have shipped them wrong, and the two right ones.

Drafter and verifier are two distributions q and p [V] that do not depend on the text. Each rule decides two tokens, drafted two
at a time, and has its true output distribution as exact sums. Reports are cited as far as they were read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Tokens = NDArray[np.int64]
_TINY = np.finfo(np.float64).tiny
TOP_K = 3
"""Tokens kept by the rules that truncate."""
EXAMPLE: tuple[Floats, Floats] = (
    np.array([0.35, 0.25, 0.15, 0.10, 0.10, 0.05]),
    np.array([0.20, 0.30, 0.10, 0.25, 0.05, 0.10]),
)
"""q and p over six words."""


@dataclass(frozen=True)
class Rule:
    """A way to decide two tokens.

    Attributes:
        law: q, p -> probabilities [V, V] of what the rule emits.
        claim: q, p -> probabilities [V, V] that it should emit.
        draw: q, p, count, generator -> tokens [count, 2], drawn as the engine draws them.
        report: where the rule, or the nearest one found, was reported; "" for a right rule.
    """

    name: str
    sentence: str
    report: str
    law: Callable[[Floats, Floats], Floats]
    draw: Callable[[Floats, Floats, int, np.random.Generator], Tokens]
    claim: Callable[[Floats, Floats], Floats] = lambda _, p: np.outer(p, p)


@dataclass(frozen=True)
class _Position:
    """How a token is decided: drawn from `draft`, kept with probability `acceptance`, else replaced by one of `residual`.

    With `one_coin`, the uniform that rejects the draft token also draws its replacement.
    """

    draft: Floats
    acceptance: Floats
    residual: Floats
    one_coin: bool = False

    def law(self) -> Floats:
        kept = self.draft * self.acceptance
        if not self.one_coin:
            return kept + (1 - kept.sum()) * self.residual
        edges = np.append(0.0, self.residual.cumsum())
        rejecting = np.maximum(edges, self.acceptance[:, None])  # a coin that rejects lies in [acceptance, 1)
        return kept + self.draft @ np.diff(rejecting)

    def draw(self, count: int, rng: np.random.Generator) -> tuple[Tokens, NDArray[np.bool_]]:
        """Tokens [count], and which of them were drafted and accepted."""
        token, coin = _inverse_cdf(self.draft, rng.random(count)), rng.random(count)
        accepted = coin < self.acceptance[token]
        replacement = _inverse_cdf(self.residual, coin if self.one_coin else rng.random(count))
        return np.where(accepted, token, replacement), accepted


def bias(law: Floats, claim: Floats) -> float:
    """The total variation between two distributions."""
    return float(np.abs(law - claim).sum() / 2)


def _inverse_cdf(probabilities: Floats, uniforms: Floats) -> Tokens:
    edges = probabilities.cumsum()
    return np.searchsorted(edges[:-1] / edges[-1], uniforms, side="right")


def _norm(weights: Floats) -> Floats:
    """Weights that sum to 1; zeros stay zeros."""
    total = weights.sum(axis=-1, keepdims=True)
    return np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)


def _cut(probabilities: Floats) -> Floats:
    """Top-k, renormalised."""
    return _norm(np.where(probabilities >= np.sort(probabilities)[-TOP_K], probabilities, 0.0))


def _examined(p: Floats, q: Floats, draft: Floats | None = None, **changes: bool) -> _Position:
    """The token rule with q in its ratio and residual; draft tokens come from q, or from `draft`."""
    draft = q if draft is None else draft
    ratio = np.divide(p, q, out=np.ones_like(p), where=q > 0)
    return _Position(draft, np.minimum(ratio, 1.0), _norm(np.maximum(p - q, 0.0)), **changes)


def _position_rule(
    name: str, sentence: str, report: str, position: Callable[[Floats, Floats], _Position], **claim: object
) -> Rule:
    """A rule that decides every token alike."""

    def law(q: Floats, p: Floats) -> Floats:
        one = position(q, p).law()
        return np.outer(one, one)

    def draw(q: Floats, p: Floats, count: int, rng: np.random.Generator) -> Tokens:
        return position(q, p).draw(2 * count, rng)[0].reshape(count, 2)

    return Rule(name, sentence, report, law, draw, **claim)  # type: ignore[arg-type]


def _unexamined_law(q: Floats, p: Floats) -> Floats:
    first = q * _examined(p, q).acceptance
    return np.outer(first, q) + np.outer(p - first, p)


def _unexamined_draw(q: Floats, p: Floats, count: int, rng: np.random.Generator) -> Tokens:
    right = _examined(p, q)
    first, accepted = right.draw(count, rng)
    second = np.where(accepted, _inverse_cdf(q, rng.random(count)), right.draw(count, rng)[0])
    return np.stack([first, second], axis=1)


def _thresholds(q: Floats, p: Floats, of_tokens: bool) -> tuple[Floats, Floats, Floats]:
    """Thresholds of block verification of two draft tokens x, y: of x [V], of the block [V, V], and the residual after x [V, V]."""
    count = len(q)
    if of_tokens:
        right = _examined(p, q)
        return right.acceptance, np.tile(right.acceptance, (count, 1)), np.tile(right.residual, (count, 1))
    import torch  # only this right rule needs it; the page shows the wrong ones, and does not import torch

    from specviz.core import block

    words = torch.arange(count)
    pairs = torch.cartesian_prod(words, words).reshape(count, count, 2)
    both = (torch.from_numpy(np.maximum(each, _TINY)).expand(count, count, 2, count) for each in (q, p))
    given = *both, pairs
    chances, leftovers = block.chances(*given).numpy(), block.leftovers(*given).numpy()
    return chances[:, 0, 0], chances[:, :, 1], _norm(leftovers[:, 0, 1])


def _block_rule(name: str, sentence: str, report: str, *, of_tokens: bool) -> Rule:
    """Block verification: of the prefixes whose coin is below their threshold, the longest is kept."""

    def law(q: Floats, p: Floats) -> Floats:
        first, whole, residual = _thresholds(q, p, of_tokens)
        both = np.outer(q, q) * whole
        neither = (np.outer(q, q) - both).sum(axis=1)  # the block was not kept, by first token
        replaced = ((1 - first) * neither).sum() * _norm(np.maximum(p - q, 0.0))
        one = (first * neither)[:, None] * residual
        return both + one + np.outer(replaced, (both + one).sum(axis=1) + replaced)  # a new block follows

    def draw(q: Floats, p: Floats, count: int, rng: np.random.Generator) -> Tokens:
        first, whole, residual = _thresholds(q, p, of_tokens)
        x, y = (_inverse_cdf(q, rng.random(count)) for _ in range(2))
        one, both = rng.random(count) < first[x], rng.random(count) < whole[x, y]
        cumulative = residual.cumsum(axis=1)[x]
        after = (rng.random(count)[:, None] >= cumulative[:, :-1]).sum(axis=1)
        tokens = np.stack([x, np.where(both, y, after)], axis=1)
        neither = np.flatnonzero(~one & ~both)
        tokens[neither, 0] = _inverse_cdf(np.maximum(p - q, 0.0), rng.random(len(neither)))
        if len(neither):
            tokens[neither, 1] = draw(q, p, len(neither), rng)[:, 0]
        return tokens

    return Rule(name, sentence, report, law, draw)


def _truncated(_: Floats, p: Floats) -> Floats:
    return np.outer(_cut(p), _cut(p))


RIGHT = (
    _position_rule(
        "token rule",
        "Keeps a draft token with probability min(1, p/q), else draws one from the residual max(0, p − q).",
        "",
        lambda q, p: _examined(p, q),
    ),
    _block_rule(
        "block verification",
        "Keeps the longest prefix of a block that passes the joint ratio of its tokens.",
        "",
        of_tokens=False,
    ),
)

WRONG = (
    _position_rule(
        "resampling from p",
        "After a rejection, the replacement is drawn from p, which is at hand, instead of the residual max(0,\u00a0p\u00a0−\u00a0q).",
        "ShopeeLLM/Spec-RL#14: there, its maintainers’ choice for training",
        lambda q, p: _Position(q, _examined(p, q).acceptance, p),
    ),
    _position_rule(
        "one coin used twice",
        "The coin that rejects a draft token also draws its replacement, which saves a random number.",
        "vllm-project/vllm-ascend#16370",
        lambda q, p: _examined(p, q, one_coin=True),
    ),
    _position_rule(
        "truncating one model only",
        f"Top-k or top-p (here k = {TOP_K}) truncates q but not p: the setting reached the drafter’s sampler only.",
        "mlc-ai/mlc-llm#2940",
        lambda q, p: _examined(p, _cut(q)),
        claim=_truncated,
    ),
    _position_rule(
        "renormalising late",
        f"Draft tokens come from the truncated (here k = {TOP_K}) and renormalised q, but ratio and residual use q as it was before.",
        "huggingface/transformers#47932",
        lambda q, p: _examined(_cut(p), q, _cut(q)),
        claim=_truncated,
    ),
    Rule(
        "keeping the K-th token unexamined",
        "The last draft token of a block is kept if all before it were. Examining it would cost the verifier one more position.",
        "none found; nearest: ohdearquant/lattice#243 keeps the first one unexamined",
        _unexamined_law,
        _unexamined_draw,
    ),
    _block_rule(
        "block verification with the token rule’s ratio",
        "The longest prefix whose coin passes is kept, but with the thresholds and the residual of the token rule, which the engine already had.",
        "vllm-project/vllm-ascend#7807",
        of_tokens=True,
    ),
)
