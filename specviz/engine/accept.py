"""Accept: which draft tokens pass, and what replaces the first one that does not.

A draft token v is accepted where its coin is below min(1, pi(v)/q(v)); the first rejected one is replaced by a draw from
the residual (the paper's algorithm 4, with `core.target` for pi). Every position has coins of its own, so there is no bonus
token: a K-th draft token is examined like the others. Tensors in, tensors out; knows no model.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from specviz.core.backend import Backend
from specviz.core.distributions import Distributions
from specviz.core.target import Target, Verdict
from specviz.engine.draft import Drafted
from specviz.engine.plan import AcceptInputs


@dataclass(frozen=True)
class Decision:
    """What a round decided for the sequences [B] of one method."""

    inputs: AcceptInputs
    lengths: list[int]  # draft tokens of each sequence; 0 without a drafter
    tokens: Tensor | None  # draft tokens [B, K]; None without a drafter
    drafter_logits: Tensor | None  # [B, K, V], where they are kept
    verifier_logits: Tensor | None  # [B, K, V]; None without a verifier
    target: Target  # what the method decodes towards at these positions
    verdict: Verdict | None  # of the draft tokens; None unless both models ran
    resampled: Tensor | None  # replaces the first rejected one, [B]; None without a verifier


def accept(
    inputs: AcceptInputs, drafted: Drafted | None, verifier_logits: Tensor | None, backend: Backend
) -> Decision:
    """Compare every draft token's coin with its acceptance probability, and replace the first one rejected.

    Without a verifier every draft token stands (`drafter_only`); without a drafter one token is drawn from p (`verifier_only`).

    Args:
        inputs: of the sequences of one method.
        drafted: of all sequences that draft.
        verifier_logits: of all sequences that are verified, [V, K or more, vocabulary].
    """
    tokens = counts = q_logits = p_logits = verdict = resampled = None
    lengths, longest, known = [0] * len(inputs.sequences), 1, {}
    if inputs.method.drafts:
        assert drafted is not None
        lengths = [drafted.lengths[slot] for slot in inputs.drafter_slots]
        longest, counts = max(lengths), drafted.counts[inputs.drafted]
        tokens = drafted.tokens[inputs.drafted, 1 : longest + 1]
        known["q"] = drafted.q[inputs.drafted, :longest]
        q_logits = None if drafted.logits is None else drafted.logits[inputs.drafted, :longest]
    if inputs.method.verifies:
        assert verifier_logits is not None
        p_logits = verifier_logits[inputs.verified, :longest]
    both = Distributions(q_logits, p_logits, *inputs.sampling, backend=backend, **known)
    target = Target.of(inputs.method, both, inputs.lenience)
    if tokens is not None and counts is not None and p_logits is not None:
        verdict = target.decide(tokens, counts, inputs.accept_coins, inputs.resample_coins)
        resampled = verdict.resampled
    elif p_logits is not None:
        resampled = backend.draw(both.p, inputs.resample_coins)[:, 0]
    return Decision(inputs, lengths, tokens, q_logits, p_logits, target, verdict, resampled)
