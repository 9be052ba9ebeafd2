"""One round of a batch: plan, draft, verify, accept and resample on the device; then read the decisions on the host.

The paper's algorithm 4 for many sequences at once. The verifier reads each sequence's last token and first K − 1 draft tokens, which
gives p at all K positions. It does not read the K-th draft token, so there is no p for a bonus token.
The host queues work and waits for the device once, at the end. Knows the two models' runners; changes no sequence and ends no run.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specviz.core import gumbel
from specviz.core.backend import Backend
from specviz.core.distributions import Distributions
from specviz.core.method import Method
from specviz.core.methods import METHODS
from specviz.core.sampling import (
    ACCEPT,
    DRAFT,
    RESAMPLE,
    Number,
    Penalty,
    SamplingParameters,
    confidence,
    distribution,
    penalise,
    steps,
)
from specviz.core.target import Target
from specviz.engine.record import Decision, Outcome, Seconds, download, outcomes, tensors
from specviz.engine.sequence import Sequence
from specviz.runtime.cpu.threads import budget, limited_to
from specviz.runtime.runner import Drafting, Runner
from specviz.schema.settings import AUTO

THRESHOLD = 0.2
"""If the engine chooses K, a draft ends after a token of lower confidence. CPU only: elsewhere the host would wait for each token."""
UNVERIFIED = 8
"""The draft length if no verifier runs: long enough that a round's fixed cost does not matter."""
_MANY_NUMBERS = 1 << 22
"""With this many numbers in its distributions, a round uses several threads."""


def run_round(
    drafter: Runner, verifier: Runner, automatic: int, backend: Backend
) -> tuple[list[Outcome], Seconds]:
    """Draft up to K tokens per sequence, verify all of them in one pass, accept or resample, and read the decisions back.

    A sequence may use one model alone: without a verifier every draft token is accepted, without a drafter one token is drawn from p.
    Returns an outcome for each sequence, and the round's duration. `automatic` is K for sequences that let the engine choose.
    """
    watch = _Stopwatch(verifier.device)
    plan = plan_round(drafter, verifier, automatic)
    width = max((plan.lengths[each] for each in plan.drafter_slots), default=1)
    numbers = len(plan.lengths) * width * verifier.vocabulary_size
    # Waking threads takes longer than arithmetic on a few vocabularies.
    with limited_to(1 if numbers < _MANY_NUMBERS else budget()):
        watch.mark()
        drafted = draft(plan, drafter, verifier.device, backend) if plan.drafter_slots else None
        watch.mark()
        logits = verify(plan, verifier, drafted) if plan.verifier_slots else None
        watch.mark()
        decisions = [
            accept(method, group, plan, drafted, logits, verifier.device, backend)
            for method, group in plan.groups()
        ]
        values = download([tensors(decision, backend) for decision in decisions])
        seconds = watch.read()
        read = zip(decisions, values, strict=True)
        found = [outcome for decision, own in read for outcome in outcomes(decision, own, seconds)]
    return found, seconds


# ---- plan --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """What a round is going to do.

    Attributes:
        lengths: K of each sequence.
        found: the draft tokens that a lookup found for each sequence; None if a model drafts.
        drafter_slots, verifier_slots: slots of the sequences that draft, and of those that are verified. Drafter slots are numbered
            without the sequences for which a lookup found nothing.
        noise: exponentials [K or more, V] of the next positions of each sequence whose method shares noise.
    """

    lengths: dict[Sequence, int]
    found: dict[Sequence, list[int]] | None
    drafter_slots: dict[Sequence, int]
    verifier_slots: dict[Sequence, int]
    noise: dict[Sequence, np.ndarray]

    def groups(self) -> list[tuple[Method, list[Sequence]]]:
        """The sequences in groups that are decided together: equal in method, rule and `greedy_drafts`.

        Sequences for which a lookup found nothing are decided as verifier_only, with the noise of their own method.
        """
        members = defaultdict[Any, list[Sequence]](list)
        for each in self.lengths:
            drafts = each in self.drafter_slots
            method = METHODS["verifier_only"] if each.method.drafts and not drafts else each.method
            members[method, each.method.name, each.request.rule, each.greedy_drafts].append(each)
        return [(method, group) for (method, *_), group in members.items()]


def plan_round(drafter: Runner, verifier: Runner, automatic: int) -> Plan:
    """Plan the next round of all sequences that have slots. `automatic` is K for sequences that let the engine choose."""
    sequences: list[Sequence] = list(dict.fromkeys([*verifier.owners, *drafter.owners]))
    lengths, found = _draft_lengths(sequences, automatic), None
    drafting: list[Sequence] = drafter.owners
    if drafter.looks_up:
        # Whether a lookup finds nothing at a position depends only on the tokens before it, not on K (law 2).
        found = {each: drafter.propose(each.ids, lengths[each], each.banned) for each in drafting}
        lengths |= {each: max(1, len(tokens)) for each, tokens in found.items()}
        drafting = [each for each in drafting if found[each]]
    longest = max(lengths.values())
    noise = {
        each: gumbel.noise(each.next_uniforms(RESAMPLE, longest), drafter.vocabulary_size)
        for each in sequences
        if each.method.shares_noise
    }
    drafter_slots, verifier_slots = (
        {each: slot for slot, each in enumerate(owners)} for owners in (drafting, verifier.owners)
    )
    return Plan(lengths, found, drafter_slots, verifier_slots, noise)


def _draft_lengths(sequences: list[Sequence], automatic: int) -> dict[Sequence, int]:
    """K of each sequence. With automatic K, unverified sequences get the longest K of the others, which sets the number of passes."""

    def length(sequence: Sequence, automatic: int) -> int:
        asked = sequence.request.draft_length
        return min(automatic if asked == AUTO else asked, sequence.tokens_left)

    verified = [each for each in sequences if each.method.verifies]
    lengths = {each: length(each, automatic) for each in verified}
    longest = max((lengths[each] for each in verified if each.method.drafts), default=1)
    unverified = longest if verified else UNVERIFIED
    return lengths | {each: length(each, unverified) for each in sequences if not each.method.verifies}


# ---- draft -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Drafted:
    """Draft tokens in the order of the plan's drafter slots [D]; values beyond a sequence's draft length are undefined."""

    lengths: list[int]  # draft tokens of each sequence
    tokens: Tensor  # each sequence's last token and its draft tokens, [D, 1 + K or more]
    q: Tensor  # [D, K or more, V]
    logits: Tensor | None  # the drafter's, shaped as `q`; None if they are not kept


def draft(plan: Plan, drafter: Runner, target: torch.device, backend: Backend) -> Drafted:
    """Draw each sequence's draft tokens: K, or fewer if a low-confidence token ends the draft. Results are moved to the device `target`."""
    sequences, device = list(plan.drafter_slots), drafter.device
    lengths = [plan.lengths[each] for each in sequences]
    tokens = np.zeros((len(sequences), 1 + max(lengths)), np.int64)
    for row, each in enumerate(sequences):
        tokens[row, 0] = each.ids[-1]
        if plan.found is not None:
            tokens[row, 1 : 1 + lengths[row]] = plan.found[each]
    keeps_logits = any(  # rules and what-ifs may read q1, which is q where sampling is plain
        each.request.return_logits or each.draft_sampling != SamplingParameters() for each in sequences
    )
    sampling = _sampling(device, [each.draft_sampling for each in sequences])
    thresholds = [THRESHOLD if each.chooses_draft_length else 0.0 for each in sequences]
    # On other devices the host would wait for each confidence.
    ends_early = (
        device.type == target.type == "cpu" and plan.found is None and any(thresholds) and max(lengths) > 1
    )
    given = Drafting(
        _on(device, tokens),
        lengths,
        [each.position for each in sequences],
        sampling.temperature,
        _uniforms(device, sequences, DRAFT, max(lengths)),
        keeps_logits,
        thresholds if ends_early else None,
    )
    is_fused = drafter.is_fused and not any(
        each.repetition_penalty != 1 or each.banned or each.draft_sampling.truncates or each in plan.noise
        for each in sequences
    )
    # q of a lookup stays one-hot, whatever is penalised or truncated.
    if is_fused or plan.found is not None:
        lengths, q, logits = drafter.draft(given)
    else:
        lengths, q, logits = _by_steps(given, plan, sampling, drafter, backend)
    logits = None if logits is None else logits.to(target)
    return Drafted(lengths, given.tokens.to(target), q.to(target), logits)


def _by_steps(
    given: Drafting, plan: Plan, sampling: SamplingParameters, drafter: Runner, backend: Backend
) -> tuple[list[int], Tensor, Tensor | None]:
    """As `Runner.draft`, but not fused: for each position one forward pass, then one draw."""
    sequences, device = list(plan.drafter_slots), drafter.device
    lengths, tokens = list(given.lengths), given.tokens
    counts, positions = _on(device, lengths), _on(device, given.positions)[:, None]
    penalty, banned = _penalty(device, sequences), _banned(device, sequences)
    coupled = [row for row, each in enumerate(sequences) if each in plan.noise]
    noise = [_on(device, plan.noise[sequences[row]]) for row in coupled]
    all_q: Tensor | None = None
    all_logits: Tensor | None = None
    step = 0
    while step < max(lengths):
        needed = None if step < min(lengths) else counts[:, None] > step
        last = zip(given.positions, lengths, strict=True)
        visible = 1 + max(position + min(step, length - 1) for position, length in last)
        own = slice(step, step + 1)
        logits = drafter.forward(tokens[:, own], positions + step, visible=visible, valid=needed)
        logits = ban(penalise(logits, penalty, tokens[:, 1:], step), banned)
        if all_q is None:
            shape = len(lengths), max(lengths), logits.shape[-1]
            all_q = logits.new_empty(shape, dtype=torch.promote_types(logits.dtype, torch.float32))
            all_logits = logits.new_empty(shape) if given.keeps_logits else None
        q = distribution(logits, *sampling, out=all_q[:, own], backend=backend)
        drawn = backend.draw(q, given.uniforms[:, own])
        for row, exponentials in zip(coupled, noise, strict=True):
            drawn[row] = gumbel.draw(q[row], exponentials[own])
        step += 1
        tokens[:, step : step + 1] = drawn
        if all_logits is not None:
            all_logits[:, own] = logits
        if given.thresholds is not None:
            found = confidence(logits, given.temperature, q, drawn, backend).tolist()
            for row, (value, threshold) in enumerate(zip(found, given.thresholds, strict=True)):
                lengths[row] = min(lengths[row], step) if value < threshold else lengths[row]
            counts = torch.tensor(lengths)
    assert all_q is not None
    return lengths, all_q, all_logits


def ban(logits: Tensor, banned: Tensor | None) -> Tensor:
    """Set logits [B, n, V] of banned tokens to −inf, in place; `banned` [m, 2] are pairs of row and token id."""
    if banned is not None:
        rows, tokens = banned.unbind(1)
        logits.transpose(1, 2)[rows, tokens] = -math.inf
    return logits


# ---- verify and accept -------------------------------------------------------------------------------------


def verify(plan: Plan, verifier: Runner, drafted: Drafted | None) -> Tensor:
    """Logits [B, K, V] at the positions of the round, in the order of the verifier's slots; K is 1 if no sequence drafts."""
    sequences, device = list(plan.verifier_slots), verifier.device
    lengths = [1] * len(sequences)
    drafting = [each for each in sequences if each in plan.drafter_slots]
    own, slots = ([each[one] for one in drafting] for each in (plan.verifier_slots, plan.drafter_slots))
    if drafted is not None:
        for slot, its in zip(own, slots, strict=True):
            lengths[slot] = drafted.lengths[its]
    width, positions = np.arange(max(lengths)), [each.position for each in sequences]
    tokens = _on(device, np.array([each.ids[-1:] * len(width) for each in sequences]))
    if drafted is not None and drafting:
        tokens[_rows(device, own)] = drafted.tokens[_rows(device, slots), : len(width)]
    valid = width < np.array(lengths)[:, None]
    logits = verifier.forward(
        tokens,
        _on(device, np.add.outer(positions, width)),
        visible=max(map(sum, zip(positions, lengths, strict=True))),
        valid=None if valid.all() else _on(device, valid),
        transient=True,
    )
    if (penalty := _penalty(device, sequences)) is not None:
        logits = penalise(logits, penalty, tokens[:, 1:], steps(len(width), device)[None])
    return ban(logits, _banned(device, sequences))


def accept(
    method: Method,
    sequences: list[Sequence],
    plan: Plan,
    drafted: Drafted | None,
    verifier_logits: Tensor | None,
    device: torch.device,
    backend: Backend,
) -> Decision:
    """Compare each draft token's uniform with its acceptance probability, and replace the first one rejected.

    Without a verifier every draft token is accepted (`drafter_only`); without a drafter one token is drawn from p (`verifier_only`).
    `drafted` holds all sequences that draft, `verifier_logits` [B, K or more, V] all that are verified. Both are on `device`.
    """
    tokens = q_logits = p_logits = verdict = resampled = None
    lengths, longest, known = [0] * len(sequences), 1, {}
    if method.drafts:
        assert drafted is not None
        slots = [plan.drafter_slots[each] for each in sequences]
        own, lengths = _rows(device, slots), [drafted.lengths[slot] for slot in slots]
        longest = max(lengths)
        tokens = drafted.tokens[own, 1 : longest + 1]
        known["q"] = drafted.q[own, :longest]
        q_logits = None if drafted.logits is None else drafted.logits[own, :longest]
    if method.verifies:
        assert verifier_logits is not None
        own = _rows(device, [plan.verifier_slots[each] for each in sequences])
        p_logits = verifier_logits[own, :longest]
    both = Distributions(
        q_logits,
        p_logits,
        *_sampling(device, [each.sampling for each in sequences]),
        backend=backend,
        greedy_drafts=sequences[0].greedy_drafts,
        **known,
    )
    target = Target.of(method, both, _shared(device, [each.lenience for each in sequences]))
    coins, resampling = (_uniforms(device, sequences, kind, longest) for kind in (ACCEPT, RESAMPLE))
    noise = None
    if sequences[0] in plan.noise:
        noise = _on(device, np.stack([plan.noise[each][:longest] for each in sequences]))
    if tokens is not None and p_logits is not None:
        verdict = target.decide(tokens, _on(device, lengths), coins, resampling, noise)
        resampled = verdict.resampled
        if method.matches:
            coins = target.matching_uniforms(tokens, verdict.accepted, resampling, noise)
    elif p_logits is not None:
        resampled = target.drawn(resampling, noise)[:, 0]
    return Decision(method, sequences, lengths, tokens, q_logits, p_logits, target, coins, verdict, resampled)


# ---- values of several sequences on a device, one row each -------------------------------------------------


def _on(device: torch.device, values: Any) -> Tensor:
    """Numbers as a tensor on a device; the host does not wait for the copy."""
    found = torch.as_tensor(values)
    return found if device.type == "cpu" else found.to(device, non_blocking=True)


def _uniforms(device: torch.device, sequences: list[Sequence], kind: int, count: int) -> Tensor:
    """Uniforms of one kind at the next `count` positions, float64 [B, count]."""
    return _on(device, np.stack([each.next_uniforms(kind, count) for each in sequences]))


def _rows(device: torch.device, indices: list[int]) -> Tensor | slice:
    """Indices of rows of a tensor; a slice if they are consecutive, since it selects a view."""
    first = indices[0]
    if indices == list(range(first, first + len(indices))):
        return slice(first, first + len(indices))
    return _on(device, indices)


def _shared(device: torch.device, values: list[float]) -> Number:
    """One number if all values are equal, which is faster; else one per sequence, float64 [B, 1]."""
    return values[0] if len(set(values)) == 1 else _on(device, np.array(values, np.float64)[:, None])


def _sampling(device: torch.device, parameters: list[SamplingParameters]) -> SamplingParameters:
    """Sampling parameters of all sequences, each a number or [B, 1]."""
    return SamplingParameters(*(_shared(device, list(column)) for column in zip(*parameters, strict=True)))


def _penalty(device: torch.device, sequences: list[Sequence]) -> Penalty | None:
    """The sequences' repetition penalties; None if all are 1."""
    strengths = [each.repetition_penalty for each in sequences]
    if all(strength == 1 for strength in strengths):
        return None
    seen = [list(set(each.ids) if each.repetition_penalty != 1 else each.ids[-1:]) for each in sequences]
    longest = max(map(len, seen))
    padded = [ids + ids[:1] * (longest - len(ids)) for ids in seen]
    return Penalty(_on(device, np.array(strengths, np.float64)[:, None]), _on(device, padded))


def _banned(device: torch.device, sequences: list[Sequence]) -> Tensor | None:
    """Row and token id of each banned token, int64 [n, 2]; None if no token is banned."""
    pairs = [(row, token) for row, each in enumerate(sequences) for token in each.banned]
    return _on(device, pairs) if pairs else None


class _Stopwatch:
    """Measures the total time, and the time between marks: on a GPU by the clock of the GPU."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._begin = time.perf_counter()
        self._marks: list[Any] = []

    def mark(self) -> None:
        """Mark a boundary: called before drafting, before verification and after it."""
        now: Any = time.perf_counter()
        if self._device.type == "cuda":
            now = torch.cuda.Event(enable_timing=True)
            now.record(torch.cuda.current_stream(self._device))
        self._marks.append(now)

    def read(self) -> Seconds:
        """Seconds of drafting, of verification, and in total until now. Call after the download."""
        total = time.perf_counter() - self._begin
        drafter, verifier = (
            end - begin if isinstance(end, float) else begin.elapsed_time(end) / 1000
            for begin, end in pairwise(self._marks)
        )
        return Seconds(drafter, verifier, total)
