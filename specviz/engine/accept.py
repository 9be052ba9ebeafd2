"""Accept: which draft tokens pass, and what replaces the first one that does not.

A draft token v is accepted where its coin is below min(1, pi(v)/q(v)); the first rejected one is replaced by a draw from
the residual (the paper's algorithm 4, with `core.target` for pi). Every position has coins of its own, so there is no bonus
token: a K-th draft token is examined like the others. Tensors in, tensors out; knows no model.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from specviz.core.distributions import Distributions
from specviz.core.kernels import Pending
from specviz.core.sampling import distribution, draw
from specviz.core.target import Target, Values, Verdict, decide_as_examined, tests_as_examined
from specviz.engine.draft import Drafted
from specviz.engine.plan import AcceptInputs, first, select


@dataclass(frozen=True)
class Verified:
    """The verifier's part for the sequences [B] of one method, at all K positions of the round.

    Attributes:
        logits, p: [B, K, V].
        p1: the same where a rule may need it.
        pending: how p and p1 are found, as far as draft tokens are examined; then they are room for it, or None where they are not kept.
    """

    logits: Tensor
    p: Tensor | None
    p1: Tensor | None
    pending: Pending | None = None

    @staticmethod
    def of(inputs: AcceptInputs, logits: Tensor) -> Verified:
        """From the logits of all sequences that are verified."""
        own = first(select(logits, inputs.verified), inputs.draft_length)
        if tests_as_examined(inputs.method, own) and not inputs.sequences[0].warp.truncates:
            finds_p1 = not inputs.is_plain and "p1" in inputs.method.reads
            pending = Pending(own, inputs.warp.temperature, finds_p1)
            if not inputs.explains:
                return Verified(own, None, None, pending)
            p = torch.empty(own.shape)
            return Verified(
                own, p, torch.empty(own.shape) if finds_p1 else p if inputs.is_plain else None, pending
            )
        p = distribution(own, *inputs.warp)
        if inputs.is_plain:
            return Verified(own, p, p)
        return Verified(own, p, distribution(own) if inputs.method.rule else None)


@dataclass(frozen=True)
class Accepted:
    """Which draft tokens of the sequences [B] of one method pass, and what replaces the first that does not.

    Attributes:
        drafted: draft tokens of each, [B].
        is_ahead: a K-th one was drafted whether it would be examined or not.
        tokens: themselves, [B, K].
        q: [B, K, V], and the drafter's logits where they are kept.
        target: what the method decodes towards at these positions; None unless they are to be explained.
        verdict: what it makes of them.
    """

    drafted: Tensor
    is_ahead: bool
    tokens: Tensor
    q: Tensor
    logits: Tensor | None
    target: Target | None
    verdict: Verdict


@dataclass(frozen=True)
class Decision:
    """What a round decided for the sequences [B] of one method.

    Attributes:
        inputs: of the group.
        drafted: draft tokens as used, None without a drafter: [B, K], with `q` [B, K, V] and, where kept, `drafter_logits`.
        verified: None without a verifier.
        accepted: None unless both models run.
        resampled: what replaces the first rejected draft token, or the verifier's own token, [B]; None without a verifier.
    """

    inputs: AcceptInputs
    drafted: Tensor | None = None
    drafter_logits: Tensor | None = None
    q: Tensor | None = None
    verified: Verified | None = None
    accepted: Accepted | None = None
    resampled: Values | None = None


def accept(inputs: AcceptInputs, drafted: Drafted, verified: Verified) -> Accepted:
    """Compare every draft token's coin with its acceptance probability, all at once, and replace the first one rejected."""
    counts = select(drafted.counts, inputs.drafted)
    tokens, q, logits = drafted.some(inputs.drafted, inputs.draft_length)
    count, known = q.shape[1], {"q": q}
    if inputs.is_plain:
        known["q1"] = q
    for name, values in (("p", verified.p), ("p1", verified.p1)):
        if values is not None:
            known[name] = first(values, count)
    verifier_logits = None if inputs.is_plain else first(verified.logits, count)
    distributions = Distributions(logits, verifier_logits, *inputs.warp, **known)
    some = tokens, counts, inputs.accept_coins, inputs.resample_coins
    if verified.pending is not None:
        how = inputs.method, inputs.lenience, distributions, verified.pending
        verdict, target = decide_as_examined(*how, *some, records=inputs.records, kept=inputs.explains)
    else:
        target = Target.of(inputs.method, distributions, inputs.lenience)
        verdict = target.decide(*some, inputs.records)
    return Accepted(counts, drafted.is_ahead, tokens, q, logits, target, verdict)


def decide(
    inputs: AcceptInputs, drafted: Drafted | None, verified: Verified | None, accepted: Accepted | None
) -> Decision:
    """What was accepted and resampled; or one token drawn from p without a drafter (`verifier_only`).

    Without a verifier every draft token stands (`drafter_only`).
    """
    if accepted is not None:
        own = accepted.tokens, accepted.logits, accepted.q
        return Decision(inputs, *own, verified, accepted, accepted.verdict.resampled)
    if verified is not None:
        assert verified.p is not None
        return Decision(inputs, verified=verified, resampled=draw(verified.p, inputs.resample_coins)[:, 0])
    assert drafted is not None
    tokens, q, logits = drafted.some(inputs.drafted, inputs.draft_length)
    return Decision(inputs, tokens, logits, q)
