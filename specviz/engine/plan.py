"""The plan of a round: which sequences draft how much, and every number the device needs for it.

Made once before the round, uploaded in one transfer, and not changed while the round runs, but for the draft tokens. Knows
sequences and their settings; runs no model and decides nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
from torch import Tensor

from specviz.core.backend import Backend
from specviz.core.method import Method
from specviz.core.sampling import ACCEPT, DRAFT, RESAMPLE, Penalty, SamplingParameters
from specviz.engine.draft_length import THRESHOLD, UNVERIFIED
from specviz.engine.sequence import Sequence
from specviz.engine.transfer import Array, upload
from specviz.runtime.runner import Runner
from specviz.schema.settings import AUTO


@dataclass(frozen=True)
class DraftInputs:
    """What drafting needs, in the order of the drafter's slots [D].

    Attributes:
        sequences: the one in each slot.
        draft_lengths: K of each.
        first_positions: the position of each sequence's last token, on the host.
        tokens: the token buffer: that token, and 0 for each of K draft tokens, [D, 1 + K].
        positions: the last token's, [D, 1].
        counts: K of each, [D].
        coins: uniforms of the next K draws, float64 [D, K].
        penalty: repetition penalties, if any.
        banned: (slot, token id) of each banned token, [n, 2], if any.
        temperature: one number, or [D, 1].
        truncating, sampling: the slots [t] whose distributions are truncated, and how; None where there are none.
        keeps_logits: the drafter's logits are asked for, or q1 may be made of them.
        is_fused: drafting is fused.
        thresholds: of each slot, the confidence below which a draft token ends the draft; None where none does.
        backend: passes over the vocabulary.
    """

    __uploads__ = True

    sequences: tuple[Sequence, ...]
    draft_lengths: tuple[int, ...]
    first_positions: tuple[int, ...]
    tokens: Array
    positions: Array
    counts: Array
    coins: Array
    penalty: Penalty | None
    banned: Array
    temperature: Array
    truncating: Array
    sampling: SamplingParameters | None
    keeps_logits: bool
    is_fused: bool
    thresholds: tuple[float, ...] | None
    backend: Backend


@dataclass(frozen=True)
class VerifyInputs:
    """What verifying needs, in the order of the verifier's slots [V].

    Attributes:
        drafter_slots: for each slot that sequence's slot at the drafter; None where it does not draft.
        first_positions: the position of each sequence's last token, on the host.
        tokens: that token, [V, 1].
        positions: its and those after it, [V, K].
        counts: tokens read of each sequence, [V, 1]; at most, where a confidence may end a draft.
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
        sampling, lenience: one number each, or [B, 1].
        backend: passes over the vocabulary.
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
    sampling: SamplingParameters
    lenience: Array
    backend: Backend

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
        began: when planning began, on the clock of `time.perf_counter`: it is part of the round.
    """

    __uploads__ = True

    draft: DraftInputs | None
    verify: VerifyInputs | None
    groups: list[AcceptInputs]
    width: int
    began: float


def plan_round(
    sequences: Iterable[Sequence], drafter: Runner, verifier: Runner, automatic: int, backend: Backend
) -> RoundPlan:
    """Plan the next round of all `sequences`, which sit in slots of the two models; uploads its numbers.

    `automatic` is K where it is left to the engine.
    """
    began = time.perf_counter()
    sequences = list(sequences)
    lengths = _draft_lengths(sequences, automatic)
    # Elsewhere the host would wait for a confidence.
    ends_early = drafter.device.type == verifier.device.type == "cpu"
    plan = RoundPlan(
        draft=_draft_inputs(drafter, lengths, ends_early, backend) if drafter.owners else None,
        verify=_verify_inputs(verifier, drafter, lengths) if verifier.owners else None,
        groups=_groups(sequences, lengths, drafter, verifier, backend),
        width=max(lengths.values()),
        began=began,
    )
    if drafter.device == verifier.device:
        return upload(verifier.device, plan)
    return replace(
        upload(verifier.device, replace(plan, draft=None)), draft=upload(drafter.device, plan.draft)
    )


Lengths = dict[Sequence, int]


def _draft_lengths(sequences: list[Sequence], automatic: int) -> Lengths:
    """K of each sequence. Those that are not verified draft as many tokens as the others: the longest draft sets the passes of all."""

    def length(sequence: Sequence, automatic: int) -> int:
        asked = sequence.request.draft_length
        return min(automatic if asked == AUTO else asked, sequence.tokens_left)

    verified = [each for each in sequences if each.method.verifies]
    lengths = {each: length(each, automatic) for each in verified}
    longest = max((lengths[each] for each in verified if each.method.drafts), default=1)
    unverified = longest if verified else UNVERIFIED
    return lengths | {each: length(each, unverified) for each in sequences if not each.method.verifies}


def _draft_inputs(drafter: Runner, lengths: Lengths, ends_early: bool, backend: Backend) -> DraftInputs:
    sequences: list[Sequence] = drafter.owners
    draft_lengths = [lengths[each] for each in sequences]
    truncating = [slot for slot, each in enumerate(sequences) if each.sampling.truncates]
    is_plain = all(each.sampling == SamplingParameters() for each in sequences)
    tokens = np.zeros((len(sequences), 1 + max(draft_lengths)), np.int64)
    tokens[:, 0] = [each.ids[-1] for each in sequences]
    thresholds = tuple(THRESHOLD if each.chooses_draft_length else 0.0 for each in sequences)
    return DraftInputs(
        sequences=tuple(sequences),
        draft_lengths=tuple(draft_lengths),
        first_positions=tuple(each.position for each in sequences),
        tokens=tokens,
        positions=_column(each.position for each in sequences),
        counts=np.array(draft_lengths),
        coins=_coins(sequences, max(draft_lengths), DRAFT),
        penalty=_penalty(sequences),
        banned=_banned(sequences),
        temperature=_shared([each.sampling.temperature for each in sequences]),
        truncating=np.array(truncating, np.int64) if truncating else None,
        sampling=_sampling([sequences[slot] for slot in truncating]) if truncating else None,
        keeps_logits=any(
            each.request.return_logits
            or (not is_plain and ("q1" in each.method.reads or each.request.inspect))
            for each in sequences
        ),
        is_fused=drafter.is_fused
        and not any(
            each.banned or each.sampling.truncates or each.repetition_penalty != 1 for each in sequences
        ),
        thresholds=thresholds if ends_early and any(thresholds) and max(draft_lengths) > 1 else None,
        backend=backend,
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
    return sequence.method.name, sequence.request.rule, sequence.sampling.truncates


def _groups(
    sequences: list[Sequence], lengths: Lengths, drafter: Runner, verifier: Runner, backend: Backend
) -> list[AcceptInputs]:
    """Sequences by method and rule, and by whether their distributions are truncated; in the order of their slots, so that nothing
    need be copied to bring them together.
    """
    slots = {each: slot for slot, each in enumerate([*drafter.owners, *verifier.owners])}
    in_order = sorted(sequences, key=slots.__getitem__)
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
                sampling=_sampling(group),
                lenience=_shared([each.lenience for each in group]),
                backend=backend,
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
    index = {each: number for number, each in enumerate(order)}
    indices = [index[each] for each in wanted]
    if indices and indices == list(range(indices[0], indices[-1] + 1)):
        return slice(indices[0], indices[-1] + 1)
    return np.array(indices, np.int64)


def _column(values: Iterable[int]) -> np.ndarray:
    return np.array(list(values), np.int64)[:, None]


def _shared(values: list[Any]) -> Any:
    """One number where all sequences agree, which is faster; else one each, [B, 1]."""
    return values[0] if len(set(values)) == 1 else np.array(values, np.float64)[:, None]


def _sampling(sequences: list[Sequence]) -> SamplingParameters:
    return SamplingParameters(
        *(_shared(list(column)) for column in zip(*(each.sampling for each in sequences), strict=True))
    )


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
