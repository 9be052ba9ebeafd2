"""Draft: the drafter proposes up to K tokens a sequence, one pass each.

A fused drafter runs its passes and draws in one compiled call; any other runs step by step. The verifier reads a sequence's last token
and its draft tokens but the K-th, and so scores all K positions. Tensors in, tensors out; knows one model and no rule.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from specviz.core.backend import Backend
from specviz.core.sampling import confidence, distribution, penalise
from specviz.engine.plan import DraftInputs
from specviz.runtime.runner import Runner


@dataclass(frozen=True)
class Drafted:
    """Draft tokens in the order of the drafter's slots [D]; what lies beyond a sequence's draft length is not set."""

    lengths: list[int]  # draft tokens of each sequence, on the host
    counts: Tensor  # the same on the device, [D]
    tokens: Tensor  # each sequence's last token and its draft tokens, [D, 1 + K or more]
    q: Tensor  # [D, K or more, V]
    logits: Tensor | None  # the drafter's, as `q`; None where they are not kept

    def to(self, device: torch.device) -> Drafted:
        """The same on another device."""
        moved: Any = {
            name: value.to(device) for name, value in vars(self).items() if isinstance(value, Tensor)
        }
        return replace(self, **moved)


def draft(inputs: DraftInputs, drafter: Runner, backend: Backend) -> Drafted:
    """Draw each sequence's draft tokens; K of them, or fewer where one of low confidence ends the draft."""
    return _fused(inputs, drafter) if inputs.is_fused else _by_steps(inputs, drafter, backend)


def _fused(inputs: DraftInputs, drafter: Runner) -> Drafted:
    shape = len(inputs.lengths), max(inputs.lengths), drafter.vocabulary_size
    q = drafter.buffer("q", *shape)
    logits = drafter.buffer("logits", *shape) if inputs.keeps_logits else None
    lengths = drafter.draft(
        inputs.tokens,
        q,
        inputs.lengths,
        inputs.first_positions,
        inputs.temperature,
        inputs.coins,
        logits=logits,
        thresholds=inputs.thresholds,
    )
    counts = inputs.counts if inputs.thresholds is None else torch.tensor(lengths)
    return Drafted(lengths, counts, inputs.tokens, q, logits)


def _by_steps(inputs: DraftInputs, drafter: Runner, backend: Backend) -> Drafted:
    lengths, counts, tokens = list(inputs.lengths), inputs.counts, inputs.tokens
    all_q: Tensor | None = None
    all_logits: Tensor | None = None
    step = 0
    while step < max(lengths):
        needed = None if step < min(lengths) else counts[:, None] > step
        last = zip(inputs.first_positions, lengths, strict=True)
        visible = 1 + max(position + min(step, length - 1) for position, length in last)
        own = slice(step, step + 1)
        logits = drafter.forward(tokens[:, own], inputs.positions + step, visible=visible, valid=needed)
        logits = ban(penalise(logits, inputs.penalty, tokens[:, 1:], step), inputs.banned)
        if all_q is None:
            shape = len(lengths), max(lengths), logits.shape[-1]
            all_q = logits.new_empty(shape, dtype=torch.promote_types(logits.dtype, torch.float32))
            all_logits = logits.new_empty(shape) if inputs.keeps_logits else None
        q = distribution(logits, inputs.temperature, out=all_q[:, own], backend=backend)
        if inputs.sampling is not None:
            some = logits[inputs.truncated]
            q[inputs.truncated] = distribution(some, *inputs.sampling, backend=backend)
        drawn = backend.draw(q, inputs.coins[:, own])
        step += 1
        tokens[:, step : step + 1] = drawn
        if all_logits is not None:
            all_logits[:, own] = logits
        if inputs.thresholds is not None:
            found = confidence(logits, inputs.temperature, q, drawn, backend).tolist()
            for slot, (value, threshold) in enumerate(zip(found, inputs.thresholds, strict=True)):
                lengths[slot] = min(lengths[slot], step) if value < threshold else lengths[slot]
            counts = torch.tensor(lengths)
    assert all_q is not None
    return Drafted(lengths, counts, tokens, all_q, all_logits)


def ban(logits: Tensor, banned: Tensor | None) -> Tensor:
    """Set logits [B, n, V] of banned tokens to −inf, in place; `banned` [m, 2] are pairs of row and token id."""
    if banned is not None:
        rows, tokens = banned.unbind(1)
        logits.transpose(1, 2)[rows, tokens] = -math.inf
    return logits
