"""Verify: one verifier pass scores every position of the round at once.

The verifier reads each sequence's last token and its draft tokens but the K-th, and so gives p at all K positions. Tensors
in, tensors out; knows one model and no rule.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specviz.core.sampling import penalise, steps
from specviz.engine.draft import Drafted, ban
from specviz.engine.plan import VerifyInputs
from specviz.runtime.runner import Runner


def verify(inputs: VerifyInputs, verifier: Runner, drafted: Drafted | None) -> Tensor:
    """Logits [V, K, vocabulary] at the positions of the round, in the order of the verifier's slots.

    Args:
        drafted: None where no sequence drafts: then K is 1.
    """
    lengths, tokens = [1] * len(inputs.first_positions), inputs.tokens
    if drafted is not None:
        lengths = [1 if slot is None else drafted.lengths[slot] for slot in inputs.drafter_slots]
        tokens = tokens.repeat(1, max(lengths))
        tokens[inputs.drafting] = drafted.tokens[inputs.drafted, : max(lengths)]
    width, needed = max(lengths), None
    if min(lengths) < width:
        own = torch.tensor(lengths)[:, None] if verifier.device.type == "cpu" else inputs.counts
        needed = steps(width, verifier.device) < own
    visible = max(begin + length for begin, length in zip(inputs.first_positions, lengths, strict=True))
    logits = verifier.forward(
        tokens, inputs.positions[:, :width], visible=visible, valid=needed, transient=True
    )
    logits = penalise(logits, inputs.penalty, tokens[:, 1:], steps(width, tokens.device)[None])
    return ban(logits, inputs.banned)
