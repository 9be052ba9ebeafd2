"""Draft: the drafter proposes up to K tokens a sequence, one pass each; in one go where it can draw by itself.

The verifier reads a sequence's last token and its draft tokens but the K-th, and so scores all K positions. The K-th only matters
where all others were accepted. It is drafted with the others, or afterwards where it does matter, if few sequences draft and drafting
step by step makes a pass dear (see `plan.may_hold_back`). Tensors in, tensors out; knows one model and no rule.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
from torch import Tensor

from specviz.core.sampling import confidence, distribution, draw, penalise
from specviz.engine.draft_length import AdaptiveDraftLength, OneDraftToken
from specviz.engine.plan import DraftInputs, first, select
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
        kept: their logits, as `room`, where they are kept.
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
    kept: Tensor | None
    passes: int
    is_incomplete: bool
    is_ahead: bool
    confidences: list[list[float]]

    def some(self, slots: Tensor | slice | None, count: int) -> tuple[Tensor, Tensor, Tensor | None]:
        """Up to `count` draft tokens [B, n] of some slots, q [B, n, V], and the drafter's logits, where they are kept."""
        count = min(count, self.steps)
        kept = None if self.kept is None else select(first(self.kept, count), slots)
        return select(self.line, slots)[:, 1 : count + 1], select(first(self.room, count), slots), kept

    def to(self, device: torch.device) -> Drafted:
        """The same on another device."""
        if self.line.device == device:
            return self
        kept = None if self.kept is None else self.kept.to(device)
        moved = {name: getattr(self, name).to(device) for name in ("counts", "line", "room")}
        return replace(self, kept=kept, **moved)


def draft(inputs: DraftInputs, drafter: Runner) -> Drafted:
    """Draw all K tokens of each sequence; or what the verifier is to read, K − 1 of them and at least one."""
    lengths, drawn = inputs.draft_lengths, _Drawn(inputs.line)
    counts = [inputs.before_verifier(length) for length in lengths]
    if inputs.in_one_go:
        counts, confidences = _draw_in_one_go(inputs, drafter, drawn, counts)
        steps, lengths = max(counts), tuple(counts)
    else:
        starts = [0] * len(counts)
        # To have Ks of their own takes one go.
        shared = cast(AdaptiveDraftLength | OneDraftToken | None, inputs.adaptive)
        steps, length, confidences = _draw_by_steps(inputs, drafter, drawn, starts, counts, shared)
        if inputs.adaptive is not None:
            lengths = tuple(min(length, each) for each in lengths)
            counts = [inputs.before_verifier(each) for each in lengths]
    assert drawn.room is not None
    return Drafted(
        lengths,
        inputs.counts if inputs.adaptive is None else torch.tensor(counts),
        steps,
        drawn.line,
        drawn.room,
        drawn.kept,
        passes=steps,
        is_incomplete=counts != list(lengths),
        is_ahead=not inputs.holds_back,
        confidences=confidences,
    )


def draft_last(inputs: DraftInputs, drafter: Runner, drafted: Drafted, wanted: Tensor) -> Drafted:
    """Draw the K-th token of the sequences where `wanted` [D] holds; what is drawn for others is not used."""
    lengths, flags = drafted.draft_lengths, wanted.tolist()
    starts = [length - 1 for length in lengths]
    stops = [start + flag for start, flag in zip(starts, flags, strict=True)]
    drawn = _Drawn(drafted.line, drafted.room, drafted.kept)
    _draw_by_steps(inputs, drafter, drawn, starts, stops, None)
    return replace(
        drafted,
        counts=drafted.counts + wanted,
        steps=max(lengths),
        passes=drafted.passes + 1,
        is_incomplete=False,
    )


@dataclass
class _Drawn:
    """Where draft tokens, their q and logits are written: as in `Drafted`."""

    line: Tensor
    room: Tensor | None = None
    kept: Tensor | None = None

    @property
    def width(self) -> int:
        """The largest K."""
        return self.line.shape[1] - 1


Confidences = list[list[float]]
"""How sure the drafter was of each sequence's tokens, where K depends on it; else empty."""


def _draw_in_one_go(
    inputs: DraftInputs, drafter: Runner, drawn: _Drawn, stops: list[int]
) -> tuple[list[int], Confidences]:
    """Draw `stops` draft tokens of each sequence, or fewer where K is chosen by how sure the drafter is; returns how many of each."""
    shape, adaptive = (len(stops), drawn.width, drafter.vocabulary_size), inputs.adaptive
    drawn.room = drafter.room("q", *shape)
    drawn.kept = drafter.room("logits", *shape) if inputs.keeps_logits else None
    sure, stopping = None, None
    if adaptive is not None:
        sure, stopping = np.zeros(shape[:2], np.float32), adaptive.stopping()
        if stopping is None:
            each = zip(inputs.sequences, stops, strict=True)
            stops = [min(stop, adaptive.length) if own.chooses_draft_length else stop for own, stop in each]
    counts = drafter.draft(
        drawn.line,
        drawn.room,
        stops,
        inputs.first_positions,
        inputs.temperature,
        inputs.coins,
        kept=drawn.kept,
        sure=None if sure is None else torch.from_numpy(sure),
        stopping=stopping,
    )
    return counts, [[] for _ in stops] if sure is None else _confidences(sure, counts)


def _confidences(sure: np.ndarray, counts: list[int]) -> Confidences:
    """As lists; what is not a number is reported later."""
    rows = zip(sure[:, : max(counts)].tolist(), counts, strict=True)
    return [[0.0 if each != each else each for each in row[:count]] for row, count in rows]


def _draw_by_steps(
    inputs: DraftInputs,
    drafter: Runner,
    drawn: _Drawn,
    starts: list[int],
    stops: list[int],
    adaptive: AdaptiveDraftLength | OneDraftToken | None,
) -> tuple[int, int, Confidences]:
    """Draw each sequence's draft tokens `starts` to `stops` − 1, one pass after the other, or fewer where K is chosen meanwhile; returns
    the drafter's passes, and that K.
    """
    turn, length, found = 0, None, list[Tensor]()
    confidences: Confidences = [[] for _ in starts]
    for turn in range(max(stop - start for start, stop in zip(starts, stops, strict=True))):
        missing = [start + turn >= stop for start, stop in zip(starts, stops, strict=True)]
        at_once = min(starts) == max(starts)
        step: int | Tensor = starts[0] + turn if at_once else torch.tensor(starts)[:, None] + turn
        needed = None
        # On a GPU, where nothing is to be copied now, what is planned is drawn.
        if any(missing) or not at_once:
            needed = (
                inputs.counts[:, None] > step
                if drafter.device.type != "cpu"
                else ~torch.tensor(missing)[:, None]
            )
        before = drawn.line.gather(1, step) if isinstance(step, Tensor) else drawn.line[:, step : step + 1]
        last = zip(inputs.first_positions, starts, stops, strict=True)
        visible = 1 + max(position + min(start + turn, max(stop - 1, 0)) for position, start, stop in last)
        logits = drafter.forward(before, inputs.positions + step, visible=visible, valid=needed)
        logits = ban(penalise(logits, inputs.penalty, drawn.line[:, 1:], step), inputs.banned)
        q, tokens = _draw_one(inputs, logits, step, needed, drawn)
        if adaptive is not None:
            found.append(confidence(logits, inputs.temperature, q, tokens))
            confidences = _confidences(torch.stack(found, 1).numpy(), [len(found)] * len(starts))
            if length := adaptive.stop(confidences):
                break
    return turn + 1, length or max(inputs.draft_lengths), confidences


def _draw_one(
    inputs: DraftInputs, logits: Tensor, step: int | Tensor, needed: Tensor | None, drawn: _Drawn
) -> tuple[Tensor, Tensor]:
    """Draw a draft token of each sequence from `logits` [D, 1, V], of one step for all or of [D, 1]; returns q [D, 1, V] and the
    tokens [D, 1].
    """
    shape = len(logits), drawn.width, logits.shape[-1]
    if drawn.room is None:
        drawn.room = logits.new_empty(shape, dtype=torch.promote_types(logits.dtype, torch.float32))
        drawn.kept = logits.new_empty(shape) if inputs.keeps_logits else None
    if isinstance(step, Tensor):
        assert needed is not None
        q, rows = _distribution(inputs, logits), needed.nonzero()[:, 0]
        tokens, at = draw(q, inputs.coins.gather(1, step)), step[rows, 0]
        drawn.line[rows, at + 1], drawn.room[rows, at] = tokens[rows, 0], q[rows, 0]
        if drawn.kept is not None:
            drawn.kept[rows, at] = logits[rows, 0]
        return q, tokens
    own = slice(step, step + 1)
    q = _distribution(inputs, logits, drawn.room[:, own])
    tokens = drawn.line[:, step + 1 : step + 2] = draw(q, inputs.coins[:, own])
    if drawn.kept is not None:
        drawn.kept[:, own] = logits
    return q, tokens


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
