"""One round of a batch: draft, verify, accept and resample on the device; then read the decisions on the host.

The paper's algorithm 4 for many sequences at once. The verifier reads each sequence's last token and first K − 1 draft tokens, which
gives p at all K positions. It does not read the K-th draft token, so there is no p for a bonus token: the K-th is examined like the others.
The host queues work and waits for the device once, at the end. Knows the two models' runners; changes no sequence and ends no run.
"""

from __future__ import annotations

import time
from collections import defaultdict
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specviz.core.backend import Backend
from specviz.core.distributions import Distributions
from specviz.core.method import Method
from specviz.core.sampling import ACCEPT, RESAMPLE, penalise, steps
from specviz.core.target import Target
from specviz.engine import inputs
from specviz.engine.draft import Drafted, ban, draft
from specviz.engine.plan import Plan, plan_round
from specviz.engine.record import Decision, Outcome, Seconds, download, outcomes, tensors
from specviz.engine.sequence import Sequence
from specviz.runtime.cpu.threads import budget, limited_to
from specviz.runtime.runner import Runner

_MANY_NUMBERS = 1 << 22
"""With this many numbers in its distributions, a round uses several threads."""


def run_round(
    drafter: Runner, verifier: Runner, automatic: int, backend: Backend
) -> tuple[list[Outcome], Seconds]:
    """Draft up to K tokens per sequence, verify all of them in one pass, accept or resample, and read the decisions back.

    Either model may be absent: without a verifier every draft token is accepted, without a drafter one token per sequence
    is drawn from p. `automatic` is K where it is left to the engine.
    """
    watch = _Stopwatch(verifier.device)
    plan = plan_round(drafter, verifier, automatic)
    width = max((plan.lengths[each] for each in plan.drafter_slots), default=1)
    numbers = len(plan.lengths) * width * verifier.vocabulary_size
    # Waking threads takes longer than arithmetic on a few vocabularies.
    with limited_to(1 if numbers < _MANY_NUMBERS else budget()):
        watch.mark("plan")
        drafted = draft(plan, drafter, verifier.device, backend) if plan.drafter_slots else None
        watch.mark("drafter")
        logits = verify(plan, verifier, drafted) if plan.verifier_slots else None
        watch.mark("verifier")
        decisions = [
            accept(method, group, plan, drafted, logits, verifier.device, backend)
            for method, group in plan.groups()
        ]
        values = download([tensors(decision, backend) for decision in decisions])
        seconds = watch.read()
        read = zip(decisions, values, strict=True)
        found = [outcome for decision, own in read for outcome in outcomes(decision, own, seconds)]
    return found, seconds


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
    tokens = inputs.on(device, np.array([each.ids[-1:] * len(width) for each in sequences]))
    if drafted is not None and drafting:
        tokens[inputs.rows(device, own)] = drafted.tokens[inputs.rows(device, slots), : len(width)]
    valid = width < np.array(lengths)[:, None]
    logits = verifier.forward(
        tokens,
        inputs.on(device, np.add.outer(positions, width)),
        visible=max(map(sum, zip(positions, lengths, strict=True))),
        valid=None if valid.all() else inputs.on(device, valid),
        transient=True,
    )
    if (penalty := inputs.penalty(device, sequences)) is not None:
        logits = penalise(logits, penalty, tokens[:, 1:], steps(len(width), device)[None])
    return ban(logits, inputs.banned(device, sequences))


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

    Args:
        method: by which these sequences are decided.
        drafted: of all sequences that draft.
        verifier_logits: of all sequences that are verified, [B, K or more, V], on `device`.
    """
    tokens = counts = q_logits = p_logits = verdict = resampled = None
    lengths, longest, known = [0] * len(sequences), 1, {}
    if method.drafts:
        assert drafted is not None
        slots = [plan.drafter_slots[each] for each in sequences]
        own, lengths = inputs.rows(device, slots), [drafted.lengths[slot] for slot in slots]
        longest, counts = max(lengths), drafted.counts[own]
        tokens = drafted.tokens[own, 1 : longest + 1]
        known["q"] = drafted.q[own, :longest]
        q_logits = None if drafted.logits is None else drafted.logits[own, :longest]
    if method.verifies:
        assert verifier_logits is not None
        own = inputs.rows(device, [plan.verifier_slots[each] for each in sequences])
        p_logits = verifier_logits[own, :longest]
    both = Distributions(
        q_logits,
        p_logits,
        *inputs.sampling(device, [each.sampling for each in sequences]),
        backend=backend,
        greedy_drafts=sequences[0].greedy_drafts,
        **known,
    )
    target = Target.of(method, both, inputs.shared(device, [each.lenience for each in sequences]))
    coins, resampling = (inputs.uniforms(device, sequences, kind, longest) for kind in (ACCEPT, RESAMPLE))
    noise = None
    if sequences[0] in plan.noise:
        noise = inputs.on(device, np.stack([plan.noise[each][:longest] for each in sequences]))
    if tokens is not None and counts is not None and p_logits is not None:
        verdict = target.decide(tokens, counts, coins, resampling, noise)
        resampled = verdict.resampled
        if method.matches:
            coins = target.matching_uniforms(tokens, verdict.accepted, resampling, noise)
    elif p_logits is not None:
        resampled = target.drawn(resampling, noise)[:, 0]
    return Decision(method, sequences, lengths, tokens, q_logits, p_logits, target, coins, verdict, resampled)


class _Stopwatch:
    """Measures the time in total and between marks, the latter by a GPU's own clock."""

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
