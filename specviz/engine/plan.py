"""The plan of a round: which sequences draft how much, and every number the device needs for it.

Made once before the round, uploaded in one transfer, and not changed while the round runs, but for the draft tokens. Knows
sequences and their settings; runs no model and decides nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
from torch import Tensor

from specviz.core.method import Method
from specviz.core.sampling import ACCEPT, DRAFT, RESAMPLE, Penalty, Warp
from specviz.engine.draft_length import UNVERIFIED, AdaptiveDraftLength, OneDraftToken, OwnDraftLengths
from specviz.engine.sequence import Sequence
from specviz.engine.transfer import Array, upload
from specviz.runtime.runner import Runner
from specviz.schema.settings import AUTO, MAX_DRAFT_LENGTH

Choice = AdaptiveDraftLength | OwnDraftLengths | OneDraftToken
Chooser = Callable[[list[Sequence], bool, bool], Choice]
"""Chooses draft lengths for these sequences; the flags: `AdaptiveDraftLength`'s `holds_back`, and whether each has its own."""


@dataclass(frozen=True)
class DraftInputs:
    """What drafting needs, in the order of the drafter's slots [D].

    Attributes:
        sequences: the one in each slot.
        draft_lengths: K of each; its upper bound where K is chosen while drafting.
        holds_back: the K-th draft token waits for the verifier (see `draft_last`): where that pays, and it may not be needed.
        first_positions: the position of each sequence's last token, on the host.
        line: that token, and room for K draft tokens after it, [D, 1 + K]; 0 so far.
        positions: that token's, [D, 1].
        counts: draft tokens before the verifier pass, [D].
        coins: uniforms of the next K draws, float64 [D, K].
        penalty: repetition penalties; None where there are none.
        banned: (slot, token id) of each banned token, [n, 2]; None where there are none.
        temperature: one number, or [D, 1].
        truncating, warp: the slots [t] whose distributions are truncated, and how; None where there are none.
        keeps_logits: they are asked for, or q1 may be made of them.
        in_one_go: the drafter draws by itself.
        adaptive: chooses K while drafting; None where K is fixed before.
    """

    __uploads__ = True

    sequences: tuple[Sequence, ...]
    draft_lengths: tuple[int, ...]
    holds_back: bool
    first_positions: tuple[int, ...]
    line: Array
    positions: Array
    counts: Array
    coins: Array
    penalty: Penalty | None
    banned: Array
    temperature: Array
    truncating: Array
    warp: Warp | None
    keeps_logits: bool
    in_one_go: bool
    adaptive: Choice | None

    def before_verifier(self, draft_length: int) -> int:
        """Draft tokens that a sequence of that K drafts before the verifier pass: at least one."""
        return _before_verifier(draft_length, self.holds_back)


@dataclass(frozen=True)
class VerifyInputs:
    """What verifying needs, in the order of the verifier's slots [V].

    Attributes:
        drafter_slots: for each slot that sequence's slot at the drafter; None where it does not draft.
        first_positions: the position of each sequence's last token, on the host.
        tokens: that token, [V, 1].
        positions: its and those after it, [V, K].
        counts: tokens read of each sequence, [V, 1]; at most, where K is chosen while drafting.
        drafted: drafter slots of the sequences that draft, in the verifier's order; None where that is all in order.
        drafting: their slots at the verifier; None where that is all of them.
        penalty, banned: as in `DraftInputs`.
    """

    __uploads__ = True

    drafter_slots: tuple[int | None, ...]
    first_positions: tuple[int, ...]
    tokens: Array
    positions: Array
    counts: Array
    drafted: Array
    drafting: Array
    penalty: Penalty | None
    banned: Array

    def lengths(self, draft_lengths: SequenceOf[int] | None) -> list[int]:
        """Tokens to be read of each sequence, given K by drafter slots; 1 where it does not draft."""
        return [
            1 if slot is None or draft_lengths is None else draft_lengths[slot] for slot in self.drafter_slots
        ]


@dataclass(frozen=True)
class AcceptInputs:
    """What deciding needs for the sequences [B] of one method, truncated or not.

    Attributes:
        method: of all of them.
        sequences: themselves.
        draft_length: the largest K among them; 1 without a drafter.
        drafted, verified: their slots at drafter and verifier, for `select`; None where that is all in order.
        accept_coins, resample_coins: uniforms of the next K positions, float64 [B, K].
        records: whether any of them keeps a record.
        inspected: how many most probable tokens are recorded, [B, 1].
        warp, lenience: one number each, or [B, 1].
        is_plain: temperature 1 and no truncation everywhere, so that q is q1.
    """

    __uploads__ = True

    method: Method
    sequences: tuple[Sequence, ...]
    draft_length: int
    drafted: Array
    verified: Array
    accept_coins: Array
    resample_coins: Array
    records: bool
    inspected: Array
    warp: Warp
    lenience: Array
    is_plain: bool

    @property
    def explains(self) -> bool:
        """Whether the examined draft tokens of any of them are to be explained."""
        return self.records and any(each.request.inspect for each in self.sequences)


@dataclass(frozen=True)
class RoundPlan:
    """A round of some sequences: inputs on their devices, ready to run.

    Attributes:
        draft, verify, groups: inputs of the three stages; None where that model does not run.
        width: the largest K.
        has_own_lengths: each sequence drafts for itself, whatever others do.
        began: when planning began, on the clock of `time.perf_counter`: it is part of the round.
    """

    __uploads__ = True

    draft: DraftInputs | None
    verify: VerifyInputs | None
    groups: list[AcceptInputs]
    width: int
    has_own_lengths: bool
    began: float


_FEW = 2
"""Sequences whose K-th draft tokens wait for the verifier: of more one nearly always needs it, and all of its method would be judged twice."""


def may_hold_back(drafter: Runner, verifier: Runner) -> bool:
    """Whether K-th draft tokens may wait for the verifier: on a CPU, since asking a GPU which are needed is a wait; and where the drafter
    does not draw by itself, since to call it once more takes longer then than one pass more in one go.
    """
    return not drafter.draws and _asks_freely(drafter, verifier)


def _asks_freely(drafter: Runner, verifier: Runner) -> bool:
    """Whether what the models found can be read without a wait."""
    return drafter.device.type == verifier.device.type == "cpu"


def plan_round(
    sequences: Iterable[Sequence], drafter: Runner, verifier: Runner, choose: Chooser
) -> RoundPlan:
    """Plan the next round of all `sequences`, which sit in slots of the two models; uploads its numbers."""
    began = time.perf_counter()
    sequences = list(sequences)
    holds_back = (
        may_hold_back(drafter, verifier)
        and len(drafter.owners) <= _FEW
        and any(each.method.verifies for each in drafter.owners)
    )
    asks = _asks_freely(drafter, verifier)
    in_one_go = _draws_in_one_go(drafter)
    own = in_one_go and asks and len(drafter.owners) > 1
    lengths, adaptive = _draft_lengths(sequences, drafter, choose, asks, holds_back, own)
    groups = _groups(sequences, lengths, drafter, verifier)
    plan = RoundPlan(
        draft=_draft_inputs(drafter, lengths, adaptive, holds_back, in_one_go) if drafter.owners else None,
        verify=_verify_inputs(verifier, drafter, lengths) if verifier.owners else None,
        groups=groups,
        width=adaptive.length if adaptive else max(lengths.values()),
        has_own_lengths=own,
        began=began,
    )
    if drafter.device == verifier.device:
        return upload(verifier.device, plan)
    return replace(
        upload(verifier.device, replace(plan, draft=None)), draft=upload(drafter.device, plan.draft)
    )


Lengths = dict[Sequence, int]


def _draws_in_one_go(drafter: Runner) -> bool:
    return drafter.draws and not any(
        each.banned or each.warp.truncates or each.repetition_penalty != 1 for each in drafter.owners
    )


def _draft_lengths(
    sequences: list[Sequence], drafter: Runner, choose: Chooser, asks: bool, holds_back: bool, own: bool
) -> tuple[Lengths, Choice | None]:
    """K of each sequence, and what changes it while drafting, where anything does.

    Unless each has its `own`, the longest draft sets the passes of all: sequences that are not verified draft as many tokens as the others.
    """
    verified = [each for each in sequences if each.method.verifies]
    automatic = [each for each in drafter.owners if each.chooses_draft_length]
    choice = choose(automatic, holds_back, own) if automatic else None
    # While drafting a K that all share can change only if it does for all, and if reading confidences costs no wait.
    adaptive = choice if own or (asks and len(automatic) == len(drafter.owners)) else None
    length = MAX_DRAFT_LENGTH if adaptive else choice.length if choice else 1
    lengths = {each: _at_most_left(each, length) for each in verified}
    longest = max(
        (lengths[each] for each in verified if each.method.drafts), default=1 if verified else UNVERIFIED
    )
    unverified = UNVERIFIED if own else longest
    lengths |= {each: _at_most_left(each, unverified) for each in sequences if not each.method.verifies}
    return lengths, adaptive


def _before_verifier(draft_length: int, holds_back: bool) -> int:
    return max(1, draft_length - 1) if holds_back else draft_length


def _at_most_left(sequence: Sequence, automatic: int) -> int:
    """The sequence's own K, `automatic` where it is left to the engine; never past its end."""
    asked = sequence.request.draft_length
    return min(automatic if asked == AUTO else asked, sequence.tokens_left)


def _draft_inputs(
    drafter: Runner, lengths: Lengths, adaptive: Choice | None, holds_back: bool, in_one_go: bool
) -> DraftInputs:
    sequences: list[Sequence] = drafter.owners
    draft_lengths = [lengths[each] for each in sequences]
    truncating = [slot for slot, each in enumerate(sequences) if each.warp.truncates]
    is_plain = _is_plain(sequences)
    line = np.zeros((len(sequences), 1 + max(draft_lengths)), np.int64)
    line[:, 0] = [each.ids[-1] for each in sequences]
    return DraftInputs(
        sequences=tuple(sequences),
        draft_lengths=tuple(draft_lengths),
        holds_back=holds_back,
        first_positions=tuple(each.position for each in sequences),
        line=line,
        positions=_column(each.position for each in sequences),
        counts=np.array([_before_verifier(length, holds_back) for length in draft_lengths]),
        coins=_coins(sequences, max(draft_lengths), DRAFT),
        penalty=_penalty(sequences),
        banned=_banned(sequences),
        temperature=_shared([each.warp.temperature for each in sequences]),
        truncating=np.array(truncating, np.int64) if truncating else None,
        warp=_warp([sequences[slot] for slot in truncating]) if truncating else None,
        keeps_logits=any(
            each.request.return_logits
            or (not is_plain and ("q1" in each.method.reads or each.request.inspect))
            for each in sequences
        ),
        in_one_go=in_one_go,
        adaptive=adaptive,
    )


def _verify_inputs(verifier: Runner, drafter: Runner, lengths: Lengths) -> VerifyInputs:
    sequences: list[Sequence] = verifier.owners
    drafting = [slot for slot, each in enumerate(sequences) if each.method.drafts]
    slots = {each: slot for slot, each in enumerate(drafter.owners)}
    counts = [lengths[each] if each.method.drafts else 1 for each in sequences]
    return VerifyInputs(
        drafter_slots=tuple(slots.get(each) for each in sequences),
        first_positions=tuple(each.position for each in sequences),
        tokens=_column(each.ids[-1] for each in sequences),
        positions=_column(each.position for each in sequences) + np.arange(max(counts)),
        counts=_column(counts),
        drafted=_selection([sequences[slot] for slot in drafting], drafter.owners),
        drafting=np.array(drafting, np.int64) if len(drafting) < len(sequences) else None,
        penalty=_penalty(sequences),
        banned=_banned(sequences),
    )


def group_key(sequence: Sequence) -> tuple[str, str, bool]:
    """What sequences that are judged together have in common."""
    return sequence.method.name, sequence.request.rule, sequence.warp.truncates


def _groups(
    sequences: list[Sequence], lengths: Lengths, drafter: Runner, verifier: Runner
) -> list[AcceptInputs]:
    """Sequences by method and rule, and by whether their distributions are truncated; in the order of their slots, so that nothing
    need be copied to bring them together.
    """
    places = {each: place for place, each in enumerate([*drafter.owners, *verifier.owners])}
    in_order = sorted(sequences, key=places.__getitem__)
    groups = []
    for _, members in groupby(sorted(in_order, key=group_key), key=group_key):
        group = list(members)
        method = group[0].method
        length = max(lengths[each] for each in group) if method.drafts else 1
        groups.append(
            AcceptInputs(
                method=method,
                sequences=tuple(group),
                draft_length=length,
                drafted=_selection(group, drafter.owners) if method.drafts else None,
                verified=_selection(group, verifier.owners) if method.verifies else None,
                accept_coins=_coins(group, length, ACCEPT) if method.verifies else None,
                resample_coins=_coins(group, length, RESAMPLE) if method.verifies else None,
                records=any(each.records for each in group),
                inspected=_column(each.request.inspect for each in group),
                warp=_warp(group),
                lenience=_shared([each.lenience for each in group]),
                is_plain=_is_plain(group),
            )
        )
    return groups


def select(tensor: Tensor, indices: Tensor | slice | None) -> Tensor:
    """`tensor` [n, ...] at some of its first indices; all of it where they are None, and a view where they are a run."""
    return tensor if indices is None else tensor[indices]


def first(tensor: Tensor, count: int) -> Tensor:
    """The first `count` steps of `tensor` [n, steps, ...], which may have fewer."""
    return tensor if tensor.shape[1] <= count else tensor[:, :count]


def _selection(wanted: list[Sequence], order: list[Sequence]) -> np.ndarray | slice | None:
    """Indices of `wanted` in `order`, for `select`."""
    if wanted == order:
        return None
    place = {each: number for number, each in enumerate(order)}
    indices = [place[each] for each in wanted]
    if indices and indices == list(range(indices[0], indices[-1] + 1)):
        return slice(indices[0], indices[-1] + 1)
    return np.array(indices, np.int64)


def _column(values: Iterable[int]) -> np.ndarray:
    return np.array(list(values), np.int64)[:, None]


def _shared(values: list[Any]) -> Any:
    """One number where all sequences agree, which is faster; else one each, [B, 1]."""
    return values[0] if len(set(values)) == 1 else np.array(values, np.float64)[:, None]


def _is_plain(sequences: list[Sequence]) -> bool:
    return all(each.warp == Warp() for each in sequences)


def _warp(sequences: list[Sequence]) -> Warp:
    return Warp(*(_shared(list(column)) for column in zip(*(each.warp for each in sequences), strict=True)))


def _coins(sequences: list[Sequence], count: int, kind: int) -> np.ndarray:
    """Uniforms of a kind for the sequences' next `count` positions, [B, count]; zeros past a sequence's end."""
    coins = np.zeros((len(sequences), count))
    for index, sequence in enumerate(sequences):
        own = sequence.coins[len(sequence.ids) : len(sequence.ids) + count, kind]
        coins[index, : len(own)] = own
    return coins


def _penalty(sequences: list[Sequence]) -> Penalty | None:
    strengths = [each.repetition_penalty for each in sequences]
    if all(strength == 1 for strength in strengths):
        return None
    rows = [
        list(set(each.ids) if strength != 1 else each.ids[-1:])
        for each, strength in zip(sequences, strengths, strict=True)
    ]
    longest = max(map(len, rows))
    seen: Any = np.array([row + row[:1] * (longest - len(row)) for row in rows], np.int64)
    strength: Any = np.array(strengths, np.float64)[:, None]
    return Penalty(strength, seen)


def _banned(sequences: list[Sequence]) -> np.ndarray | None:
    pairs = [(slot, token) for slot, each in enumerate(sequences) for token in each.banned]
    return np.array(pairs, np.int64) if pairs else None
