"""One round of a batch: draft, verify, accept and resample on the device; then read the decisions on the host.

The paper's algorithm 4 for many sequences at once. The verifier reads each sequence's last token and all its draft tokens except the
K-th, which gives p at all K positions. Every position has its own uniforms, so there is no bonus token: the K-th draft token is examined
like the others. `plan` uploads all that the device needs; then the host queues work and waits for the device once, at the end. Knows
two model runners; changes no sequence and ends no run.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from specviz.core import gumbel
from specviz.core.backend import Backend
from specviz.core.distributions import Distributions
from specviz.core.sampling import confidence, distribution, penalise, steps
from specviz.core.target import Target
from specviz.engine.plan import AcceptInputs, DraftInputs, VerifyInputs, plan_round
from specviz.engine.record import Decision, Outcome, Seconds, download, outcomes, tensors
from specviz.runtime.cpu.threads import budget, limited_to
from specviz.runtime.runner import Drafting, Runner

_MANY_NUMBERS = 1 << 22
"""From this many numbers in a round's distributions on, torch uses more than one thread."""


def run_round(
    drafter: Runner, verifier: Runner, automatic: int, backend: Backend
) -> tuple[list[Outcome], Seconds]:
    """Draft up to K tokens per sequence, verify all of them in one pass, accept or resample, and read the decisions back.

    Either model may be absent: without a verifier every draft token is accepted, without a drafter one token per sequence
    is drawn from p. `automatic` is K where it is left to the engine.
    """
    watch = _Stopwatch(verifier.device)
    plan = plan_round(drafter, verifier, automatic)
    width = max(plan.draft.lengths) if plan.draft else 1
    numbers = max(len(drafter.owners), len(verifier.owners)) * width * verifier.vocabulary_size
    # Waking threads takes longer than arithmetic on a few vocabularies.
    with limited_to(1 if numbers < _MANY_NUMBERS else budget()):
        watch.mark("plan")
        drafted = draft(plan.draft, drafter, backend).to(verifier.device) if plan.draft else None
        watch.mark("drafter")
        logits = verify(plan.verify, verifier, drafted) if plan.verify else None
        watch.mark("verifier")
        decisions = [accept(group, drafted, logits, backend) for group in plan.groups]
        values = download([tensors(decision, backend) for decision in decisions])
        seconds = watch.read()
        read = zip(decisions, values, strict=True)
        found = [outcome for decision, own in read for outcome in outcomes(decision, own, seconds)]
    return found, seconds


# ---- draft


@dataclass(frozen=True)
class Drafted:
    """Draft tokens in the order of the drafter's slots [D]; values beyond a sequence's draft length are undefined."""

    lengths: list[int]  # draft tokens of each sequence, on the host
    counts: Tensor  # the same on the device, [D]
    tokens: Tensor  # each sequence's last token and its draft tokens, [D, 1 + K or more]
    q: Tensor  # [D, K or more, V]
    logits: Tensor | None  # the drafter's, shaped as `q`; None if they are not kept

    def to(self, device: torch.device) -> Drafted:
        """The same on another device."""
        moved: Any = {
            name: value.to(device) for name, value in vars(self).items() if isinstance(value, Tensor)
        }
        return replace(self, **moved)


def draft(inputs: DraftInputs, drafter: Runner, backend: Backend) -> Drafted:
    """Draw each sequence's draft tokens: K of them, or fewer if one of low confidence ends the draft."""
    return _fused(inputs, drafter) if inputs.is_fused else _by_steps(inputs, drafter, backend)


def _fused(inputs: DraftInputs, drafter: Runner) -> Drafted:
    shape = len(inputs.lengths), max(inputs.lengths), drafter.vocabulary_size
    q = drafter.buffer("q", *shape)
    logits = drafter.buffer("logits", *shape) if inputs.keeps_logits else None
    drafting = Drafting(
        inputs.tokens,
        q,
        inputs.lengths,
        inputs.first_positions,
        inputs.temperature,
        inputs.coins,
        logits,
        inputs.thresholds,
    )
    lengths = drafter.draft(drafting)
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
        logits = _ban(penalise(logits, inputs.penalty, tokens[:, 1:], step), inputs.banned)
        if all_q is None:
            shape = len(lengths), max(lengths), logits.shape[-1]
            all_q = logits.new_empty(shape, dtype=torch.promote_types(logits.dtype, torch.float32))
            all_logits = logits.new_empty(shape) if inputs.keeps_logits else None
        q = distribution(logits, inputs.temperature, out=all_q[:, own], backend=backend)
        if inputs.sampling is not None:
            some = logits[inputs.truncated]
            q[inputs.truncated] = distribution(some, *inputs.sampling, backend=backend)
        drawn = backend.draw(q, inputs.coins[:, own])
        if inputs.noise is not None:
            drawn[inputs.coupled] = gumbel.draw(q[inputs.coupled], inputs.noise[:, own])
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


# ---- verify


def verify(inputs: VerifyInputs, verifier: Runner, drafted: Drafted | None) -> Tensor:
    """Logits [V, K, vocabulary] at the positions of the round, in the order of the verifier's slots.

    Args:
        drafted: None if no sequence drafts; K is then 1.
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
    return _ban(logits, inputs.banned)


def _ban(logits: Tensor, banned: Tensor | None) -> Tensor:
    """Set logits [B, n, V] of banned tokens to −inf, in place; `banned` [m, 2] are pairs of row and token id."""
    if banned is not None:
        rows, tokens = banned.unbind(1)
        logits.transpose(1, 2)[rows, tokens] = -math.inf
    return logits


# ---- accept


def accept(
    inputs: AcceptInputs, drafted: Drafted | None, verifier_logits: Tensor | None, backend: Backend
) -> Decision:
    """Compare every draft token's coin with its acceptance probability, and replace the first one rejected.

    Without a verifier every draft token is accepted (`drafter_only`); without a drafter one token is drawn from p (`verifier_only`).

    Args:
        inputs: of the sequences of one method.
        drafted: of all sequences that draft.
        verifier_logits: of all sequences that are verified, [V, K or more, vocabulary].
    """
    tokens = counts = q_logits = p_logits = verdict = resampled = None
    lengths, longest, known = [0] * len(inputs.sequences), 1, {}
    if inputs.method.drafts:
        assert drafted is not None
        lengths = [drafted.lengths[slot] for slot in inputs.drafter_slots]
        longest, counts = max(lengths), drafted.counts[inputs.drafted]
        tokens = drafted.tokens[inputs.drafted, 1 : longest + 1]
        known["q"] = drafted.q[inputs.drafted, :longest]
        q_logits = None if drafted.logits is None else drafted.logits[inputs.drafted, :longest]
    if inputs.method.verifies:
        assert verifier_logits is not None
        p_logits = verifier_logits[inputs.verified, :longest]
    both = Distributions(
        q_logits,
        p_logits,
        *inputs.sampling,
        backend=backend,
        greedy_drafts=inputs.greedy_drafts,
        **known,
    )
    target = Target.of(inputs.method, both, inputs.lenience)
    if tokens is not None and counts is not None and p_logits is not None:
        verdict = target.decide(tokens, counts, inputs.accept_coins, inputs.resample_coins, inputs.noise)
        resampled = verdict.resampled
    elif p_logits is not None:
        resampled = target.drawn(inputs.resample_coins, inputs.noise)[:, 0]
    return Decision(inputs, lengths, tokens, q_logits, p_logits, target, verdict, resampled)


class _Stopwatch:
    """Measures the total time, and that between marks by the device's clock if it is a GPU."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._begin = time.perf_counter()
        self._marks: list[tuple[str, Any]] = []

    def mark(self, part: str) -> None:
        """End a part of that name."""
        now: Any = time.perf_counter()
        if self._device.type == "cuda":
            now = torch.cuda.Event(enable_timing=True)
            now.record(torch.cuda.current_stream(self._device))
        self._marks.append((part, now))

    def read(self) -> Seconds:
        """Seconds of both models' parts, and in total until now. Call after the download."""
        total, spent = time.perf_counter() - self._begin, defaultdict[str, float](float)
        for (_, begin), (part, end) in pairwise(self._marks):
            on_host = isinstance(end, float)
            spent[part] += end - begin if on_host else begin.elapsed_time(end) / 1000
        return Seconds(spent["drafter"], spent["verifier"], total)
