"""Draft: the drafter proposes up to K tokens a sequence, one pass each.

Before the verifier pass a sequence drafts K − 1 of its tokens: the verifier reads its last token and these, and so scores all
K positions. The K-th is drafted afterwards, and only matters where all others were accepted. Tensors in, tensors out; knows
one model and no rule.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from specviz.core.sampling import DRAFT, at, distribution, draw
from specviz.engine.plan import DraftInputs
from specviz.runtime.model_runner import ModelRunner


@dataclass(frozen=True)
class Drafted:
    """Draft tokens in the order of the drafter's slots [D]; zeros where a sequence drafted fewer than others.

    Attributes:
        draft_lengths: K of each sequence, as decided.
        counts: tokens drafted so far, [D].
        tokens, logits, q: [D, n], [D, n, V], [D, n, V].
        passes: of the drafter so far.
        is_incomplete: some sequence's K-th token is still to be drafted.
        confidences: of each sequence q1 of its draft tokens, where K was chosen while drafting.
    """

    draft_lengths: tuple[int, ...]
    counts: Tensor
    tokens: Tensor
    logits: Tensor
    q: Tensor
    passes: int
    is_incomplete: bool
    confidences: list[list[float]]

    def to(self, device: torch.device) -> Drafted:
        """The same on another device."""
        if self.tokens.device == device:
            return self
        moved = {name: getattr(self, name).to(device) for name in ("counts", "tokens", "logits", "q")}
        return replace(self, **moved)


def draft(inputs: DraftInputs, drafter: ModelRunner) -> Drafted:
    """Draw what the verifier is to read: K − 1 tokens a sequence, at least one."""
    lengths = inputs.draft_lengths
    counts = [inputs.before_verifier(length) for length in lengths]
    tokens, steps = inputs.tokens, list[_Step]()
    confidences: list[list[float]] = [[] for _ in lengths]
    while len(steps) < max(counts):
        step = len(steps)
        needed = None if min(counts) > step else inputs.counts > step
        visible = 1 + max(
            first + min(step, count - 1) for first, count in zip(inputs.first_positions, counts, strict=True)
        )
        coins = inputs.coins[:, step : step + 1, DRAFT]
        steps.append(_step(inputs, drafter, tokens, inputs.positions + step, coins, visible, needed))
        tokens = steps[-1].tokens
        if inputs.adaptive:
            _append_q1(confidences, inputs, steps[-1])
            if length := inputs.adaptive.stop(confidences):
                lengths = tuple(min(length, each) for each in lengths)
                counts = [inputs.before_verifier(each) for each in lengths]
    tokens, logits, q = (torch.cat(parts, 1) for parts in zip(*steps, strict=True))
    return Drafted(
        lengths,
        inputs.counts[:, 0].clamp_max(len(steps)),
        tokens,
        logits,
        q,
        passes=len(steps),
        is_incomplete=counts != list(lengths),
        confidences=confidences,
    )


def draft_last(inputs: DraftInputs, drafter: ModelRunner, drafted: Drafted, wanted: Tensor) -> Drafted:
    """Draw the K-th token of the sequences where `wanted` [D] holds and which have not drafted it yet."""
    width = max(drafted.draft_lengths)
    last = inputs.last.clamp_max(width - 1)
    slots = torch.arange(len(last), device=last.device)
    wanted = wanted & (last[:, 0] >= drafted.counts)
    before = drafted.tokens.gather(1, (last - 1).clamp_min(0))
    coins = inputs.coins[slots, last[:, 0], DRAFT][:, None]
    visible = max(
        first + length for first, length in zip(inputs.first_positions, drafted.draft_lengths, strict=True)
    )
    step = _step(inputs, drafter, before, inputs.positions + last, coins, visible, wanted[:, None])

    def with_last(drafted: Tensor, values: Tensor) -> Tensor:
        whole = drafted.new_zeros(len(drafted), width, *drafted.shape[2:])
        whole[:, : drafted.shape[1]] = drafted
        own = wanted.view(-1, *[1] * (drafted.dim() - 2))
        whole[slots, last[:, 0]] = torch.where(own, values[:, 0], whole[slots, last[:, 0]])
        return whole

    return replace(
        drafted,
        counts=drafted.counts + wanted,
        tokens=with_last(drafted.tokens, step.tokens),
        logits=with_last(drafted.logits, step.logits),
        q=with_last(drafted.q, step.q),
        passes=drafted.passes + 1,
        is_incomplete=False,
    )


class _Step(NamedTuple):
    """One drafter pass: tokens [D, 1], logits and q [D, 1, V]."""

    tokens: Tensor
    logits: Tensor
    q: Tensor


def _step(
    inputs: DraftInputs,
    drafter: ModelRunner,
    tokens: Tensor,
    positions: Tensor,
    coins: Tensor,
    visible: int,
    needed: Tensor | None,
) -> _Step:
    """Read `tokens` [D, 1] at `positions` [D, 1] and draw the next ones; `needed` [D, 1] is False for padding."""
    logits = ban(drafter.forward(tokens, positions, visible=visible, valid=needed), inputs.banned)
    q = distribution(logits, inputs.temperature)
    if inputs.warp is not None:
        q[inputs.truncating] = distribution(logits[inputs.truncating], *inputs.warp)
    return _Step(draw(q, coins), logits, q)


def _append_q1(confidences: list[list[float]], inputs: DraftInputs, step: _Step) -> None:
    q1 = at(step.q if inputs.is_plain else distribution(step.logits), step.tokens)[:, 0]
    for own, confidence in zip(confidences, q1.nan_to_num().tolist(), strict=True):  # NaN is reported later
        own.append(confidence)


def ban(logits: Tensor, banned: Tensor | None) -> Tensor:
    """Set logits [B, n, V] of banned tokens to −inf, in place; `banned` [m, 2] are pairs of row and token id."""
    if banned is not None:
        rows, tokens = banned.unbind(1)
        logits.transpose(1, 2)[rows, tokens] = -math.inf
    return logits
