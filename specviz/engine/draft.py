"""Draft: the drafter proposes up to K tokens a sequence, one pass each.

Before the verifier pass a sequence drafts K − 1 of its tokens: the verifier reads its last token and these, and so scores all
K positions. The K-th only matters where all others were accepted, and is drafted afterwards where it does; on a GPU, where
asking would be a wait, always and before. Tensors in, tensors out; knows one model and no rule.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from specviz.core.sampling import Logits, confidence, distribution, draw, sample
from specviz.engine.plan import DraftInputs, first
from specviz.runtime.runner import Runner


@dataclass(frozen=True)
class Drafted:
    """Draft tokens in the order of the drafter's slots [D]; zeros where a sequence drafted fewer than others.

    Attributes:
        draft_lengths: K of each sequence, as decided.
        counts: tokens drafted so far, [D].
        steps: the most of them, n.
        line: each sequence's last token, and its draft tokens after it, [D, 1 + K or more].
        room: [D, K or more, V]; its first n are q, and what a sequence has not drafted is not set.
        logits: [D, n, V], where they are kept.
        passes: of the drafter so far.
        is_incomplete: some sequence's K-th token is still to be drafted.
        is_ahead: the K-th tokens were drafted whether they will be examined or not.
        confidences: of each sequence's draft tokens, where K was chosen while drafting.
    """

    draft_lengths: tuple[int, ...]
    counts: Tensor
    steps: int
    line: Tensor
    room: Tensor
    logits: Tensor | None
    passes: int
    is_incomplete: bool
    is_ahead: bool
    confidences: list[list[float]]

    @property
    def tokens(self) -> Tensor:
        """Draft tokens [D, n]."""
        return self.line[:, 1 : self.steps + 1]

    @property
    def q(self) -> Tensor:
        """The drafter's distributions, [D, n, V]."""
        return first(self.room, self.steps)

    def to(self, device: torch.device) -> Drafted:
        """The same on another device."""
        if self.line.device == device:
            return self
        logits = None if self.logits is None else self.logits.to(device)
        moved = {name: getattr(self, name).to(device) for name in ("counts", "line", "room")}
        return replace(self, logits=logits, **moved)


def draft(inputs: DraftInputs, drafter: Runner) -> Drafted:
    """Draw what the verifier is to read: K − 1 tokens a sequence, at least one; or all K at once."""
    lengths = inputs.draft_lengths
    counts = [inputs.before_verifier(length) for length in lengths]
    line, steps, kept = torch.constant_pad_nd(inputs.tokens, (0, max(lengths))), 0, list[Tensor]()
    room: Tensor | None = None
    confidences: list[list[float]] = [[] for _ in lengths]
    while steps < max(counts):
        needed = None if min(counts) > steps else inputs.counts > steps
        visible = 1 + max(
            position + min(steps, count - 1)
            for position, count in zip(inputs.first_positions, counts, strict=True)
        )
        logits = _logits(inputs, drafter, line, steps, visible, needed)
        room = _room(logits, max(lengths)) if room is None else room
        sure = _draw(inputs, logits, steps, room, line)
        steps += 1
        if inputs.keeps_logits:
            kept.append(logits.whole())
        if inputs.adaptive and sure is not None:
            known = sure.nan_to_num().tolist()  # NaN is reported later
            for own, each in zip(confidences, known, strict=True):
                own.append(each)
            if length := inputs.adaptive.stop(confidences):
                lengths = tuple(min(length, each) for each in lengths)
                counts = [inputs.before_verifier(each) for each in lengths]
    assert room is not None
    return Drafted(
        lengths,
        inputs.counts[:, 0].clamp_max(steps),
        steps,
        line,
        room,
        _joined(kept) if kept else None,
        passes=steps,
        is_incomplete=counts != list(lengths),
        is_ahead=not inputs.holds_back,
        confidences=confidences,
    )


def draft_last(inputs: DraftInputs, drafter: Runner, drafted: Drafted, wanted: Tensor) -> Drafted:
    """Draw the K-th token of the sequences where `wanted` [D] holds; what is drawn for others is not used."""
    width, steps = max(drafted.draft_lengths), drafted.steps
    visible = max(
        position + length
        for position, length in zip(inputs.first_positions, drafted.draft_lengths, strict=True)
    )
    if min(drafted.draft_lengths) == width == steps + 1:  # it comes next for all of them
        needed = wanted[:, None] if len(wanted) > 1 else None
        logits = _logits(inputs, drafter, drafted.line, steps, visible, needed)
        _draw(inputs, logits, steps, drafted.room, drafted.line)
        kept = drafted.logits if drafted.logits is None else _joined([drafted.logits, logits.whole()])
    else:
        last, rows = inputs.last.clamp_max(width - 1), wanted.nonzero()[:, 0]
        scores = _logits(inputs, drafter, drafted.line, last, visible, wanted[:, None]).whole()
        q = _distribution(inputs, scores)

        def with_last(whole: Tensor, values: Tensor, index: Tensor) -> Tensor:
            whole[rows, index[rows]] = values[rows, 0]
            return whole

        with_last(drafted.line, draw(q, inputs.coins.gather(1, last)), last[:, 0] + 1)
        with_last(drafted.room, q, last[:, 0])
        kept = drafted.logits
        if kept is not None:
            more = kept.new_zeros(len(kept), width - steps, kept.shape[-1])
            kept = with_last(torch.cat((kept, more), 1), scores, last[:, 0])
    return replace(
        drafted,
        counts=drafted.counts + wanted,
        steps=width,
        logits=kept,
        passes=drafted.passes + 1,
        is_incomplete=False,
    )


def _joined(steps: list[Tensor]) -> Tensor:
    """Values [D, n, ...] of all steps, one after another."""
    return steps[0] if len(steps) == 1 else torch.cat(steps, 1)


def _room(logits: Logits, width: int) -> Tensor:
    """Room for the distributions [D, width, V] that are made of logits at one position of each; not set."""
    values = logits.values
    dtype = torch.promote_types(values.dtype, torch.float32)
    return torch.empty(len(values), width, logits.size, dtype=dtype, device=values.device)


def _logits(
    inputs: DraftInputs,
    drafter: Runner,
    line: Tensor,
    step: int | Tensor,
    visible: int,
    needed: Tensor | None,
) -> Logits:
    """Logits at one position of each, of a `step`'s draft tokens, one for all or [D, 1]; `needed` [D, 1] is False for padding."""
    before = line.gather(1, step) if isinstance(step, Tensor) else line[:, step : step + 1]
    logits = drafter.logits(before, inputs.positions + step, visible=visible, valid=needed)
    if inputs.banned is None and inputs.warp is None and not inputs.keeps_logits:
        return logits
    return Logits(ban(logits.whole(), inputs.banned), None, logits.size)


def _draw(inputs: DraftInputs, logits: Logits, step: int, room: Tensor, line: Tensor) -> Tensor | None:
    """Write a step's q to `room` and its draft tokens to `line`; returns how sure of them the drafter is [D] where K depends on it."""
    wants_confidence = inputs.adaptive is not None
    if inputs.warp is None:
        return sample(logits, inputs.temperature, inputs.coins, step, room, line, wants_confidence)
    own, whole = slice(step, step + 1), logits.whole()
    q = _distribution(inputs, whole, room[:, own])
    tokens = line[:, step + 1 : step + 2] = draw(q, inputs.coins[:, own])
    return confidence(whole, inputs.temperature, q, tokens) if wants_confidence else None


def _distribution(inputs: DraftInputs, logits: Tensor, out: Tensor | None = None) -> Tensor:
    """q of `logits` [D, 1, V], written to `out` where that is given."""
    q = distribution(logits, inputs.temperature, out=out)
    if inputs.warp is not None:
        q[inputs.truncating] = distribution(logits[inputs.truncating], *inputs.warp)
    return q


def ban(logits: Tensor, banned: Tensor | None) -> Tensor:
    """Set logits [B, n, V] of banned tokens to −inf, in place; `banned` [m, 2] are pairs of row and token id."""
    if banned is not None:
        rows, tokens = banned.unbind(1)
        logits.transpose(1, 2)[rows, tokens] = -math.inf
    return logits
