"""Accept: which draft tokens pass, and what replaces the first one that does not.

A draft token v is accepted where its coin is below min(1, pi(v)/q(v)); the first rejected one is replaced by a draw from
the residual (the paper's algorithm 4, with `core.target` for pi). Every position has coins of its own, so there is no bonus
token: a K-th draft token is examined like the others. Tensors in, tensors out; knows no model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from specviz.core.distributions import Distributions
from specviz.core.target import Target, Verdict
from specviz.engine.draft import Drafted
from specviz.engine.plan import AcceptInputs, first, select


@dataclass(frozen=True)
class Decision:
    """What a round decided for the sequences [B] of one method.

    Attributes:
        inputs: of the group.
        drafted: draft tokens [B, K]; None without a drafter.
        counts: how many of them each sequence drafted, [B]; None without a drafter.
        drafter_logits, verifier_logits: [B, K, V], where that model ran and they are kept.
        target: what the method decodes towards at these positions.
        verdict: what it makes of the draft tokens; None unless both models ran.
        resampled: what replaces the first rejected draft token, or the verifier's own token, [B]; None without a verifier.
    """

    inputs: AcceptInputs
    drafted: Tensor | None
    counts: Tensor | None
    drafter_logits: Tensor | None
    verifier_logits: Tensor | None
    target: Target
    verdict: Verdict | None = None
    resampled: Tensor | None = None

    @property
    def device(self) -> torch.device:
        """The device of all of it."""
        both = self.target.distributions
        return both.p.device if self.inputs.method.verifies else both.q.device


def accept(inputs: AcceptInputs, drafted: Drafted | None, verifier_logits: Tensor | None) -> Decision:
    """Compare every draft token's coin with its acceptance probability, and replace the first one rejected.

    Without a verifier every draft token stands (`drafter_only`); without a drafter one token is drawn from p (`verifier_only`).

    Args:
        inputs: of the sequences of one method.
        drafted: of all sequences that draft.
        verifier_logits: of all sequences that are verified, [V, K or more, vocabulary].
    """
    method, tokens, counts, drafter_logits, known = inputs.method, None, None, None, {}
    if method.drafts:
        assert drafted is not None
        counts = select(drafted.counts, inputs.drafted)
        tokens, known["q"], drafter_logits = drafted.some(inputs.drafted, inputs.draft_length)
    if method.verifies:
        assert verifier_logits is not None
        verifier_logits = first(
            select(verifier_logits, inputs.verified), tokens.shape[1] if tokens is not None else 1
        )
    else:
        verifier_logits = None
    both = Distributions(drafter_logits, verifier_logits, *inputs.sampling, backend=inputs.backend, **known)
    target = Target.of(method, both, inputs.lenience)
    decision = Decision(inputs, tokens, counts, drafter_logits, verifier_logits, target)
    if not method.verifies:
        return decision
    if tokens is None or counts is None:
        resampled = inputs.backend.draw(both.p, inputs.resample_coins)[:, 0]
        return replace(decision, resampled=resampled)
    verdict = target.decide(tokens, counts, inputs.accept_coins, inputs.resample_coins)
    return replace(decision, verdict=verdict, resampled=verdict.resampled)
