"""Six wrong rules of speculative decoding, most of them reported as bugs of engines.

Drafter and verifier are two distributions q and p [V] that do not depend on the text. Each rule decides two tokens, drafted two
at a time. Its output distribution is computed as exact sums.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Law = Callable[[Floats, Floats], Floats]
"""q, p [V] -> probabilities [V, V] of two tokens."""
TOP_K = 3
"""Number of tokens that the truncating rules keep."""
EXAMPLE: tuple[Floats, Floats] = (
    np.array([0.35, 0.25, 0.15, 0.10, 0.10, 0.05]),
    np.array([0.20, 0.30, 0.10, 0.25, 0.05, 0.10]),
)
"""q and p over six words."""


@dataclass(frozen=True)
class Rule:
    """A way to decide two tokens.

    Attributes:
        report: where the rule was reported, or the most similar report that was found.
        law: the distribution of the two tokens that the rule emits.
        claim: the distribution that these tokens should have.
    """

    name: str
    sentence: str
    report: str
    law: Law
    claim: Law = lambda _, p: np.outer(p, p)


def bias(law: Floats, claim: Floats) -> float:
    """The total variation distance between two distributions."""
    return float(np.abs(law - claim).sum() / 2)


def _norm(weights: Floats) -> Floats:
    """Scale weights to sum to 1 over the last axis; weights that are all 0 stay 0."""
    total = weights.sum(axis=-1, keepdims=True)
    return np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)


def _cut(probabilities: Floats) -> Floats:
    """Top-k, renormalised."""
    return _norm(np.where(probabilities >= np.sort(probabilities)[-TOP_K], probabilities, 0.0))


def _acceptance(q: Floats, p: Floats) -> Floats:
    return np.minimum(np.divide(p, q, out=np.ones_like(p), where=q > 0), 1.0)


def _residual(q: Floats, p: Floats) -> Floats:
    return _norm(np.maximum(p - q, 0.0))


def _token(draft: Floats, acceptance: Floats, residual: Floats) -> Floats:
    """The law [V] of a token drawn from `draft`, kept with probability `acceptance`, else replaced by a draw from `residual`."""
    kept = draft * acceptance
    return kept + (1 - kept.sum()) * residual


def _one_coin(q: Floats, p: Floats) -> Floats:
    """The law [V] of a token whose uniform, if it rejects the draft token, also draws the replacement."""
    acceptance = _acceptance(q, p)
    edges = np.append(0.0, _residual(q, p).cumsum())
    rejecting = np.maximum(edges, acceptance[:, None])  # a coin that rejects lies in [acceptance, 1)
    return q * acceptance + q @ np.diff(rejecting)


def _twice(token: Law) -> Law:
    """The law [V, V] of two independent tokens, each with the law `token` [V]."""

    def law(q: Floats, p: Floats) -> Floats:
        one = token(q, p)
        return np.outer(one, one)

    return law


def _unexamined(q: Floats, p: Floats) -> Floats:
    first = q * _acceptance(q, p)
    return np.outer(first, q) + np.outer(p - first, p)


def _block(q: Floats, p: Floats) -> Floats:
    """Block verification with the token rule: keeps the longest prefix whose last token has a uniform below its acceptance."""
    acceptance, residual = _acceptance(q, p), _residual(q, p)
    both = np.outer(q, q) * acceptance
    neither = (np.outer(q, q) - both).sum(axis=1)  # by first token: the block was not kept whole
    replaced = ((1 - acceptance) * neither).sum() * residual
    one = (acceptance * neither)[:, None] * residual
    return both + one + np.outer(replaced, (both + one).sum(axis=1) + replaced)  # a new block follows


def _truncated(_: Floats, p: Floats) -> Floats:
    return np.outer(_cut(p), _cut(p))


WRONG = (
    Rule(
        "resampling from p",
        "After a rejection, the replacement is drawn from p, which is at hand, instead of the residual max(0,\u00a0p\u00a0−\u00a0q).",
        "ShopeeLLM/Spec-RL#14: there, its maintainers’ choice for training",
        _twice(lambda q, p: _token(q, _acceptance(q, p), p)),
    ),
    Rule(
        "one coin used twice",
        "The coin that rejects a draft token also draws its replacement, which saves a random number.",
        "vllm-project/vllm-ascend#16370",
        _twice(_one_coin),
    ),
    Rule(
        "truncating one model only",
        f"Top-k or top-p (here k = {TOP_K}) truncates q but not p: the setting reached the drafter’s sampler only.",
        "mlc-ai/mlc-llm#2940",
        _twice(lambda q, p: _token(_cut(q), _acceptance(_cut(q), p), _residual(_cut(q), p))),
        _truncated,
    ),
    Rule(
        "renormalising late",
        f"Draft tokens come from the truncated (here k = {TOP_K}) and renormalised q, but ratio and residual use q as it was before.",
        "huggingface/transformers#47932",
        _twice(lambda q, p: _token(_cut(q), _acceptance(q, _cut(p)), _residual(q, _cut(p)))),
        _truncated,
    ),
    Rule(
        "keeping the K-th token unexamined",
        "The last draft token of a block is kept if all before it were. Examining it would cost the verifier one more position.",
        "none found; nearest: ohdearquant/lattice#243 keeps the first one unexamined",
        _unexamined,
    ),
    Rule(
        "block verification with the token rule’s ratio",
        "The longest prefix whose coin passes is kept, but with the thresholds and the residual of the token rule, which the engine already had.",
        "vllm-project/vllm-ascend#7807",
        _block,
    ),
)
