"""The plan of a round: which sequences draft how much, and every number the device needs for it.

Made once before the round, and uploaded in one transfer, since the host waits for the device at every copy from pageable memory. Knows
sequences and their settings; runs no model and decides nothing.

A round of draft length K takes K drafter passes and one verifier pass over K tokens per sequence. It emits 1 + a + … + a^(K−1) tokens
per sequence, where a is the acceptance rate. If K is left to the engine ("auto"), the engine maximises tokens per second, from the pair's
pass times and one assumed acceptance rate. On a CPU, where the host can read a confidence without waiting, such a draft also ends after a
token of low confidence, as with transformers' `assistant_confidence_threshold`. K never changes a text, only its speed (law 2).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specviz.core import gumbel
from specviz.core.method import Method
from specviz.core.methods import METHODS
from specviz.core.sampling import ACCEPT, DRAFT, RESAMPLE, Penalty, SamplingParameters
from specviz.engine.sequence import Sequence
from specviz.runtime.pass_times import PassTimes
from specviz.runtime.runner import Runner
from specviz.schema.settings import AUTO, MAX_DRAFT_LENGTH

ACCEPTANCE = 0.75
"""The acceptance rate assumed when the engine chooses K."""
THRESHOLD = 0.3
"""A draft ends after a token of lower confidence."""
UNVERIFIED = 8
"""The draft length if no verifier runs: long enough that a round's fixed cost does not matter."""

Array = Any
"""A numpy array (int64 or float64) on the host, a Tensor once uploaded; anything else stays as it is."""


@dataclass
class DraftInputs:
    """What drafting needs, in the order of the drafter's slots [D]; only of those for which a lookup found something."""

    lengths: list[int]  # K of each sequence, on the host
    first_positions: list[int]  # of each sequence's last token, on the host
    tokens: Array  # int64 [D, 1 + K]: the token buffer: last tokens, and 0 for each draft token, or the one that was looked up
    positions: Array  # int64 [D, 1]: of the last tokens
    counts: Array  # int64 [D]: K of each
    coins: Array  # float64 [D, K]: uniforms of the draws
    coupled: Array  # int64 [c]: slots whose draws share the verifier's noise
    noise: Array  # float64 [c, K, vocabulary]: their exponentials; None without any
    penalty: Penalty | None
    banned: Array  # int64 [n, 2]: slot and token id of each banned token; None without any
    temperature: Array  # one number, or float64 [D, 1]
    truncated: Array  # int64 [t]: slots whose distributions are truncated
    sampling: SamplingParameters | None  # of those slots; None without any
    keeps_logits: bool  # a request returns the drafter's logits, or q1 may be computed from them
    is_fused: bool
    thresholds: list[float] | None  # confidence below which a draft ends; None where none ends early


@dataclass
class VerifyInputs:
    """What verifying needs, in the order of the verifier's slots [V]."""

    drafter_slots: list[int | None]  # each sequence's slot at the drafter; None if it does not draft
    first_positions: list[int]  # of each sequence's last token, on the host
    tokens: Array  # int64 [V, 1]: the last tokens
    positions: Array  # int64 [V, K]: of the last tokens and those after them
    counts: Array  # int64 [V, 1]: tokens to read per sequence; an upper bound if `thresholds` end drafts
    drafted: Array  # for sequences that draft, their slots at the drafter, in the verifier's order
    drafting: Array  # the same sequences' slots at the verifier
    penalty: Penalty | None
    banned: Array  # as in `DraftInputs`


@dataclass
class AcceptInputs:
    """What deciding needs for the sequences [B] of one method; all of them are truncated, or none is, and all draft greedily, or none does."""

    method: Method
    sequences: list[Sequence]
    drafter_slots: list[int]  # empty without a drafter
    drafted: Array  # the same on the device
    verified: Array  # the sequences' slots at the verifier
    accept_coins: Array  # float64 [B, K]: uniforms of these positions
    resample_coins: Array
    noise: Array  # float64 [B, K, vocabulary]: exponentials of these positions; None unless the method shares noise
    sampling: SamplingParameters  # one number each, or [B, 1]
    greedy_drafts: bool  # whether q is one-hot
    lenience: Array  # likewise
    records: bool  # whether any of them keeps a record
    inspect: int  # most probable tokens to record per position; 0 for none


@dataclass
class RoundPlan:
    """Inputs of a round's stages, on their devices; None where that model does not run."""

    draft: DraftInputs | None
    verify: VerifyInputs | None
    groups: list[AcceptInputs]


def plan_round(drafter: Runner, verifier: Runner, automatic: int) -> RoundPlan:
    """Plan the next round of all sequences that have slots, and upload its numbers.

    `automatic` is K where it is left to the engine.
    """
    # A sequence's row is its slot at the verifier where it has one.
    sequences: list[Sequence] = list(dict.fromkeys([*verifier.owners, *drafter.owners]))
    lengths = _draft_lengths(sequences, automatic)
    found = _found(drafter, lengths)
    drafting = [each for each in drafter.owners if found is None or found[each]]
    slots = {each: slot for slot, each in enumerate(drafting)}
    coins = _coins(sequences, max(lengths.values()))
    # On other devices the host would wait for each confidence.
    ends_early = drafter.device.type == verifier.device.type == "cpu"
    rows = {each: row for row, each in enumerate(sequences)}
    own_coins = coins[DRAFT, [rows[each] for each in drafting]]
    noise = _noise(sequences, coins[RESAMPLE], drafter.vocabulary_size)
    draft = _draft_inputs(drafter, drafting, found, lengths, own_coins, noise, ends_early) if slots else None
    verify = _verify_inputs(verifier, lengths, slots) if verifier.owners else None
    groups = _groups(sequences, lengths, slots, coins, noise)
    at_drafter, at_verifier = [draft] if draft else [], [verify, *groups] if verify else groups
    if drafter.device == verifier.device:
        upload(verifier.device, [*at_drafter, *at_verifier])
    else:
        upload(drafter.device, at_drafter)
        upload(verifier.device, at_verifier)
    return RoundPlan(draft, verify, groups)


Lengths = dict[Sequence, int]
Slots = dict[Sequence, int]
Noise = dict[Sequence, np.ndarray]


def _draft_lengths(sequences: list[Sequence], automatic: int) -> Lengths:
    """K of each sequence. Unverified ones that leave K to the engine get the longest K of the others, which sets the number of passes."""

    def length(sequence: Sequence, automatic: int) -> int:
        asked = sequence.request.draft_length
        return min(automatic if asked == AUTO else asked, sequence.tokens_left)

    verified = [each for each in sequences if each.method.verifies]
    lengths = {each: length(each, automatic) for each in verified}
    longest = max((lengths[each] for each in verified if each.method.drafts), default=1)
    unverified = longest if verified else UNVERIFIED
    return lengths | {each: length(each, unverified) for each in sequences if not each.method.verifies}


def _found(drafter: Runner, lengths: Lengths) -> dict[Sequence, list[int]] | None:
    """The draft tokens that a lookup finds for each sequence, whose draft length becomes their number; None if a model drafts.

    A sequence for which nothing is found sits the draft out: its next token is drawn from p as with verifier_only. Whether that
    happens at a position depends on the tokens before it alone, so the draft length does not show there either (law 2).
    """
    if not drafter.looks_up:
        return None
    found = {each: drafter.propose(each.ids, lengths[each], each.banned) for each in drafter.owners}
    lengths |= {each: max(1, len(tokens)) for each, tokens in found.items()}
    return found


def _coins(sequences: list[Sequence], count: int) -> np.ndarray:
    """Uniforms of the next `count` positions, by kind: [3, B, count]; zeros past a sequence's end."""
    coins = np.zeros((3, len(sequences), count))
    for row, sequence in enumerate(sequences):
        own = sequence.coins[len(sequence.ids) :][:count]
        coins[:, row, : len(own)] = own.T
    return coins


def _noise(sequences: list[Sequence], coins: np.ndarray, size: int) -> Noise:
    """The exponentials [K, size] of the next positions of sequences that share noise, from their uniforms [B, K]."""
    return {
        each: gumbel.noise(own, size)
        for each, own in zip(sequences, coins, strict=True)
        if each.method.shares_noise
    }


def _draft_inputs(
    drafter: Runner,
    sequences: list[Sequence],
    found: dict[Sequence, list[int]] | None,
    lengths: Lengths,
    coins: np.ndarray,
    noise: Noise,
    ends_early: bool,
) -> DraftInputs:
    own = [lengths[each] for each in sequences]
    coupled = [slot for slot, each in enumerate(sequences) if each in noise and found is None]
    truncated = [slot for slot, each in enumerate(sequences) if each.draft_sampling.truncates]
    is_plain = all(each.draft_sampling == SamplingParameters() for each in sequences)
    tokens = np.zeros((len(sequences), 1 + max(own)), np.int64)
    tokens[:, 0] = [each.ids[-1] for each in sequences]
    if found is not None:
        for row, each in enumerate(sequences):
            tokens[row, 1 : 1 + lengths[each]] = found[each]
    positions = [each.position for each in sequences]
    thresholds = [THRESHOLD if each.chooses_draft_length else 0.0 for each in sequences]
    penalty, banned = _penalty(sequences), _banned(sequences)
    return DraftInputs(
        lengths=own,
        first_positions=positions,
        tokens=tokens,
        positions=_column(positions),
        counts=np.array(own),
        coins=coins[:, : max(own)].copy(),
        coupled=np.array(coupled, np.int64),
        noise=np.stack([noise[sequences[slot]][: max(own)] for slot in coupled]) if coupled else None,
        penalty=penalty,
        banned=banned,
        temperature=_shared([each.draft_sampling.temperature for each in sequences]),
        truncated=np.array(truncated, np.int64),
        sampling=_sampling([sequences[slot].draft_sampling for slot in truncated]) if truncated else None,
        keeps_logits=any(
            each.request.return_logits
            or (not is_plain and ("q1" in each.method.reads or each.request.inspect))
            for each in sequences
        ),
        # What is found in the text stays one-hot, whatever is penalised or truncated.
        is_fused=drafter.is_fused
        and (drafter.looks_up or (penalty is None and banned is None and not truncated and not coupled)),
        thresholds=thresholds if ends_early and found is None and any(thresholds) and max(own) > 1 else None,
    )


def _verify_inputs(verifier: Runner, lengths: Lengths, slots: Slots) -> VerifyInputs:
    sequences: list[Sequence] = verifier.owners
    positions = [each.position for each in sequences]
    counts = [lengths[each] if each in slots else 1 for each in sequences]
    drafting = [slot for slot, each in enumerate(sequences) if each in slots]
    return VerifyInputs(
        drafter_slots=[slots.get(each) for each in sequences],
        first_positions=positions,
        tokens=_column([each.ids[-1] for each in sequences]),
        positions=_column(positions) + np.arange(max(counts)),
        counts=_column(counts),
        drafted=_selection([slots[sequences[slot]] for slot in drafting]),
        drafting=_selection(drafting),
        penalty=_penalty(sequences),
        banned=_banned(sequences),
    )


def group_key(sequence: Sequence) -> tuple[str, str, bool, bool]:
    """Sequences with the same key are decided together."""
    request = sequence.request
    return sequence.method.name, request.rule, sequence.sampling.truncates, sequence.greedy_drafts


def _groups(
    sequences: list[Sequence], lengths: Lengths, slots: Slots, coins: np.ndarray, noise: Noise
) -> list[AcceptInputs]:
    """Group sequences by `group_key`. Those that sit the draft out are decided as verifier_only, with the noise of their own method."""
    members = defaultdict[Any, list[int]](list)
    for row, each in enumerate(sequences):
        key = each in slots, *group_key(each)
        members[key].append(row)
    groups = []
    for rows in members.values():
        group = [sequences[row] for row in rows]
        method, selection = group[0].method, _selection(rows)
        if method.drafts and group[0] not in slots:
            method = METHODS["verifier_only"]
        length = max(lengths[each] for each in group) if method.drafts else 1
        drafter_slots = [slots[each] for each in group] if method.drafts else []
        groups.append(
            AcceptInputs(
                method=method,
                sequences=group,
                drafter_slots=drafter_slots,
                drafted=_selection(drafter_slots),
                verified=selection,
                accept_coins=coins[ACCEPT, selection, :length],
                resample_coins=coins[RESAMPLE, selection, :length],
                noise=np.stack([noise[each][:length] for each in group]) if group[0] in noise else None,
                sampling=_sampling([each.sampling for each in group]),
                greedy_drafts=group[0].greedy_drafts,
                lenience=_shared([each.lenience for each in group]),
                records=any(each.records for each in group),
                inspect=max(each.request.inspect * each.records for each in group),
            )
        )
    return groups


def _selection(indices: list[int]) -> np.ndarray | slice:
    """Indices of rows of a tensor; a slice if they are consecutive, since it selects a view."""
    first = indices[0] if indices else 0
    if indices == list(range(first, first + len(indices))):
        return slice(first, first + len(indices))
    return np.array(indices, np.int64)


def _column(values: list[int]) -> np.ndarray:
    return np.array(values, np.int64)[:, None]


def _shared(values: list[Any]) -> Any:
    """One number if all sequences agree, which is faster; else one for each, [B, 1]."""
    return values[0] if len(set(values)) == 1 else np.array(values, np.float64)[:, None]


def _sampling(parameters: list[SamplingParameters]) -> SamplingParameters:
    columns = zip(*parameters, strict=True)
    return SamplingParameters(*(_shared(list(column)) for column in columns))


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


# ---- the draft length


@lru_cache
def best_draft_length(times: PassTimes, sequences: int) -> int:
    """The K at which this many concurrent sequences emit the most tokens per second.

    At least 2 for a single sequence, which gains nothing from one draft token per round; pass times measured on a busy machine may say 1.
    """

    def speed(length: int) -> float:
        seconds = length * times.draft(sequences) + times.verify(sequences * length)
        return sequences * expected_tokens(ACCEPTANCE, length) / seconds

    return max(range(2 if sequences == 1 else 1, MAX_DRAFT_LENGTH + 1), key=speed)


def expected_tokens(acceptance: float, draft_length: int) -> float:
    """Tokens that a round of draft length K emits at a constant acceptance rate: 1 + a + … + a^(K−1)."""
    return sum(acceptance**step for step in range(draft_length))


# ---- the upload


def upload(device: torch.device, stages: list[Any]) -> None:
    """Replace all numpy arrays in the attributes of some objects, named tuples included, by tensors on a device, in one transfer."""
    convert: Callable[[np.ndarray], Tensor] = torch.from_numpy
    if device.type != "cpu":
        arrays: list[np.ndarray] = []
        for stage in stages:
            for value in vars(stage).values():
                _map(value, arrays.append)
        if not arrays:
            return
        packed = torch.from_numpy(np.concatenate([array.reshape(-1).view(np.int64) for array in arrays]))
        packed = packed.pin_memory() if device.type == "cuda" else packed
        parts = iter(packed.to(device, non_blocking=True).split([array.size for array in arrays]))

        def convert(array: np.ndarray) -> Tensor:
            part = next(parts).view(array.shape)
            return part.view(torch.float64) if array.dtype == np.float64 else part

    for stage in stages:
        for name, value in vars(stage).items():
            setattr(stage, name, _map(value, convert))


def _map(value: Any, function: Callable[[np.ndarray], Any]) -> Any:
    """Apply `function` to a numpy array, or to those in a named tuple; other values stay as they are."""
    if isinstance(value, np.ndarray):
        return function(value)
    if hasattr(value, "_fields"):
        return type(value)(*[_map(each, function) for each in value])
    return value
