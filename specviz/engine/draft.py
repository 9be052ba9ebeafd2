"""Draft: the drafter proposes up to K tokens a sequence, one pass each.

Before the verifier pass a sequence drafts K − 1 of its tokens: the verifier reads its last token and these, and so scores all
K positions. The K-th is drafted afterwards, and only matters where all others were accepted. Tensors in, tensors out; knows
one model and no rule.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from specviz.core.sampling import at, distribution, draw
from specviz.engine.plan import DraftInputs, first
from specviz.runtime.runner import Runner


@dataclass(frozen=True)
class Drafted:
    """Draft tokens in the order of the drafter's slots [D]; zeros where a sequence drafted fewer than others.

    Attributes:
        draft_lengths: K of each sequence, as decided.
        counts: tokens drafted so far, [D].
        tokens: [D, n].
        room: [D, K or more, V]; its first n are q, and what a sequence has not drafted is not set.
        logits: [D, n, V], where they are kept.
        passes: of the drafter so far.
        is_incomplete: some sequence's K-th token is still to be drafted.
        confidences: of each sequence q1 of its draft tokens, where K was chosen while drafting.
    """

    draft_lengths: tuple[int, ...]
    counts: Tensor
    tokens: Tensor
    room: Tensor
    logits: Tensor | None
    passes: int
    is_incomplete: bool
    confidences: list[list[float]]

    @property
    def q(self) -> Tensor:
        """The drafter's distributions, [D, n, V]."""
        return first(self.room, self.tokens.shape[1])

    def to(self, device: torch.device) -> Drafted:
        """The same on another device."""
        if self.tokens.device == device:
            return self
        logits = None if self.logits is None else self.logits.to(device)
        moved = {name: getattr(self, name).to(device) for name in ("counts", "tokens", "room")}
        return replace(self, logits=logits, **moved)


def draft(inputs: DraftInputs, drafter: Runner) -> Drafted:
    """Draw what the verifier is to read: K − 1 tokens a sequence, at least one."""
    lengths = inputs.draft_lengths
    counts = [inputs.before_verifier(length) for length in lengths]
    last, tokens, kept = inputs.tokens, list[Tensor](), list[Tensor]()
    room: Tensor | None = None
    confidences: list[list[float]] = [[] for _ in lengths]
    while len(tokens) < max(counts):
        step = len(tokens)
        needed = None if min(counts) > step else inputs.counts > step
        visible = 1 + max(
            position + min(step, count - 1)
            for position, count in zip(inputs.first_positions, counts, strict=True)
        )
        logits = _logits(inputs, drafter, last, inputs.positions + step, visible, needed)
        room = _room(logits, max(lengths)) if room is None else room
        q = _distribution(inputs, logits, room[:, step : step + 1])
        last = draw(q, inputs.coins[:, step : step + 1])
        tokens.append(last)
        if inputs.keeps_logits:
            kept.append(logits)
        if inputs.adaptive:
            _append_q1(confidences, inputs, last, logits, q)
            if length := inputs.adaptive.stop(confidences):
                lengths = tuple(min(length, each) for each in lengths)
                counts = [inputs.before_verifier(each) for each in lengths]
    assert room is not None
    return Drafted(
        lengths,
        inputs.counts[:, 0].clamp_max(len(tokens)),
        _joined(tokens),
        room,
        _joined(kept) if kept else None,
        passes=len(tokens),
        is_incomplete=counts != list(lengths),
        confidences=confidences,
    )


def draft_last(inputs: DraftInputs, drafter: Runner, drafted: Drafted, wanted: Tensor) -> Drafted:
    """Draw the K-th token of the sequences where `wanted` [D] holds and which have not drafted it yet."""
    width, count = max(drafted.draft_lengths), drafted.tokens.shape[1]
    visible = max(
        position + length
        for position, length in zip(inputs.first_positions, drafted.draft_lengths, strict=True)
    )
    if min(drafted.draft_lengths) == width == count + 1:
        return _draft_next(inputs, drafter, drafted, wanted, visible)
    last = inputs.last.clamp_max(width - 1)
    slots = torch.arange(len(last), device=last.device)
    wanted = wanted & (last[:, 0] >= drafted.counts)
    before = drafted.tokens.gather(1, (last - 1).clamp_min(0))
    logits = _logits(inputs, drafter, before, inputs.positions + last, visible, wanted[:, None])
    q = _distribution(inputs, logits)

    def with_last(whole: Tensor, values: Tensor) -> Tensor:
        own = wanted.view(-1, *[1] * (whole.dim() - 2))
        whole[slots, last[:, 0]] = torch.where(own, values[:, 0], whole[slots, last[:, 0]])
        return whole

    def wider(values: Tensor) -> Tensor:
        return torch.cat((values, values.new_zeros(len(values), width - count, *values.shape[2:])), 1)

    return replace(
        drafted,
        counts=drafted.counts + wanted,
        tokens=with_last(wider(drafted.tokens), draw(q, inputs.coins.gather(1, last))),
        room=with_last(drafted.room, q),
        logits=None if drafted.logits is None else with_last(wider(drafted.logits), logits),
        passes=drafted.passes + 1,
        is_incomplete=False,
    )


def _draft_next(
    inputs: DraftInputs, drafter: Runner, drafted: Drafted, wanted: Tensor, visible: int
) -> Drafted:
    """`draft_last` where the K-th token comes next for all sequences; what is drawn for those not wanted is not used."""
    count = drafted.tokens.shape[1]
    needed = wanted[:, None] if len(wanted) > 1 else None
    logits = _logits(inputs, drafter, drafted.tokens[:, -1:], inputs.positions + count, visible, needed)
    q = _distribution(inputs, logits, drafted.room[:, count : count + 1])
    return replace(
        drafted,
        counts=drafted.counts + wanted,
        tokens=_joined([drafted.tokens, draw(q, inputs.coins[:, count : count + 1])]),
        logits=None if drafted.logits is None else _joined([drafted.logits, logits]),
        passes=drafted.passes + 1,
        is_incomplete=False,
    )


def _joined(steps: list[Tensor]) -> Tensor:
    """Values [D, n, ...] of all steps, one after another."""
    return steps[0] if len(steps) == 1 else torch.cat(steps, 1)


def _room(logits: Tensor, width: int) -> Tensor:
    """Room for the distributions [D, width, V] that are made of logits [D, 1, V]; not set."""
    dtype = torch.promote_types(logits.dtype, torch.float32)
    return torch.empty(len(logits), width, logits.shape[-1], dtype=dtype, device=logits.device)


def _logits(
    inputs: DraftInputs,
    drafter: Runner,
    tokens: Tensor,
    positions: Tensor,
    visible: int,
    needed: Tensor | None,
) -> Tensor:
    """Read `tokens` [D, 1] at `positions` [D, 1]: logits [D, 1, V] of what follows; `needed` [D, 1] is False for padding."""
    return ban(drafter.forward(tokens, positions, visible=visible, valid=needed), inputs.banned)


def _distribution(inputs: DraftInputs, logits: Tensor, out: Tensor | None = None) -> Tensor:
    """q of `logits` [D, 1, V], written to `out` where that is given."""
    q = distribution(logits, inputs.temperature, out=out)
    if inputs.warp is not None:
        q[inputs.truncating] = distribution(logits[inputs.truncating], *inputs.warp)
    return q


def _append_q1(
    confidences: list[list[float]], inputs: DraftInputs, tokens: Tensor, logits: Tensor, q: Tensor
) -> None:
    q1 = at(q if inputs.is_plain else distribution(logits), tokens)[:, 0]
    for own, confidence in zip(confidences, q1.nan_to_num().tolist(), strict=True):  # NaN is reported later
        own.append(confidence)


def ban(logits: Tensor, banned: Tensor | None) -> Tensor:
    """Set logits [B, n, V] of banned tokens to −inf, in place; `banned` [m, 2] are pairs of row and token id."""
    if banned is not None:
        rows, tokens = banned.unbind(1)
        logits.transpose(1, 2)[rows, tokens] = -math.inf
    return logits
