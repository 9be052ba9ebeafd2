"""One round of a batch: draft, verify, accept and resample on the device; then what was decided, on the host.

The paper's algorithm 4 for many sequences at once. Everything the device needs is uploaded before (`plan`); the host queues
work and waits for the device once, at the end. Knows a plan and two model runners; changes no sequence and ends no run.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from specviz.engine.accept import Accepted, Decision, Verified, accept, decide
from specviz.engine.draft import Drafted, draft, draft_last
from specviz.engine.plan import AcceptInputs, RoundPlan
from specviz.engine.record import DraftChoice, Outcome, Seconds, outcomes, tensors
from specviz.engine.sequence import Sequence
from specviz.engine.transfer import download
from specviz.engine.verify import verify
from specviz.runtime.runner import Runner


@dataclass(frozen=True)
class RoundResult:
    """What a round came to.

    Attributes:
        outcomes: one a sequence.
        width: tokens that the verifier read of a sequence, at most; 0 where it did not run.
        tokens: that it read of all.
        passes: of the drafter.
        seconds: what the round took.
    """

    outcomes: list[Outcome]
    width: int
    tokens: int
    passes: int
    seconds: Seconds


def run_round(plan: RoundPlan, drafter: Runner, verifier: Runner) -> RoundResult:
    """Draft up to K tokens a sequence, verify all of them in one pass, accept or resample, and read the decisions back.

    Either model may be left out of a round: without a verifier every draft token stands, without a drafter one token a
    sequence is drawn from p.
    """
    watch = _Stopwatch(verifier.device, plan.began)
    drafted = draft(plan.draft, drafter).to(verifier.device) if plan.draft else None
    watch.mark("drafter")
    logits = verify(plan.verify, verifier, drafted) if plan.verify else None
    watch.mark("verifier")
    groups = plan.groups if drafted is None else _as_drafted(plan, drafted)
    judged = [_judge(group, _verified(group, logits), drafted) for group in groups]
    if drafted and drafted.is_incomplete:
        drafted, judged = _draft_last(plan, drafter, drafted, judged, watch)
    decisions = [decide(each.inputs, drafted, each.verified, each.accepted) for each in judged]
    return _read_back(plan, decisions, drafted, watch)


def _as_drafted(plan: RoundPlan, drafted: Drafted) -> list[AcceptInputs]:
    """The groups, each with the largest K that was drafted in it."""
    if plan.draft is None or plan.draft.adaptive is None:
        return plan.groups
    lengths = dict(zip(plan.draft.sequences, drafted.draft_lengths, strict=True))
    return [
        replace(group, draft_length=max(lengths.get(each, 1) for each in group.sequences))
        for group in plan.groups
    ]


@dataclass(frozen=True)
class _Judged:
    """What passes of the sequences of one method; a model's part is None where it does not run for them."""

    inputs: AcceptInputs
    verified: Verified | None = None
    accepted: Accepted | None = None

    def sequences_that_passed(self) -> list[Sequence]:
        """Those whose draft tokens all passed, or are not examined."""
        if self.accepted is None:
            return list(self.inputs.sequences)
        counts = zip(self.accepted.verdict.accepted.tolist(), self.accepted.drafted.tolist(), strict=True)
        each = zip(self.inputs.sequences, counts, strict=True)
        return [sequence for sequence, (accepted, drafted) in each if accepted == drafted]


def _verified(group: AcceptInputs, logits: Tensor | None) -> Verified | None:
    return Verified.of(group, logits) if logits is not None and group.method.verifies else None


def _judge(group: AcceptInputs, verified: Verified | None, drafted: Drafted | None) -> _Judged:
    if verified is None or drafted is None or not group.method.drafts:
        return _Judged(group, verified)
    return _Judged(group, verified, accept(group, drafted, verified))


def _draft_last(
    plan: RoundPlan,
    drafter: Runner,
    drafted: Drafted,
    judged: list[_Judged],
    watch: _Stopwatch,
) -> tuple[Drafted, list[_Judged]]:
    """Draft the K-th token where it will be examined: after K − 1 accepted ones, or where nothing is verified.

    Groups with such sequences are judged again; of their others that gives the same.
    """
    assert plan.draft is not None
    passed = {
        sequence for own in judged if own.inputs.method.drafts for sequence in own.sequences_that_passed()
    }
    lengths = zip(plan.draft.sequences, drafted.counts.tolist(), drafted.draft_lengths, strict=True)
    lacking = {sequence for sequence, count, length in lengths if count < length}
    wanted = passed & lacking
    if not wanted:
        return drafted, judged
    watch.mark()
    flags = torch.tensor([sequence in wanted for sequence in plan.draft.sequences])
    drafted = draft_last(plan.draft, drafter, drafted, flags)
    watch.mark("drafter")
    again = [
        own if wanted.isdisjoint(own.inputs.sequences) else _judge(own.inputs, own.verified, drafted)
        for own in judged
    ]
    return drafted, again


def _read_back(
    plan: RoundPlan,
    decisions: list[Decision],
    drafted: Drafted | None,
    watch: _Stopwatch,
) -> RoundResult:
    """Bring all decisions to the host in one download, and make the outcomes of them."""
    named = tensors(decisions)
    values = download(
        {(group, name): tensor for group, each in enumerate(named) for name, tensor in each.items()}
    )
    seconds = watch.read()
    choices = {}
    if drafted and plan.draft:
        drafting = zip(plan.draft.sequences, drafted.draft_lengths, drafted.confidences, strict=True)
        choices = {sequence: DraftChoice(length, tuple(sure)) for sequence, length, sure in drafting}
    found = list[Outcome]()
    for group, decision in enumerate(decisions):
        own = {name: values[group, name] for name in named[group]}
        found += outcomes(decision, own, choices, seconds)
    lengths = drafted.draft_lengths if drafted else None
    read = plan.verify.lengths(lengths) if plan.verify else []
    return RoundResult(found, max(read, default=0), sum(read), drafted.passes if drafted else 0, seconds)


class _Stopwatch:
    """Seconds since a round began and between marks, by the device's own clock where it has one."""

    def __init__(self, device: torch.device, began: float) -> None:
        self._device = device
        self._cuda = device.type == "cuda"
        self._begin = began
        self._marks: list[tuple[str, Any]] = []
        self.mark()

    def mark(self, part: str = "") -> None:
        """End a part of that name; parts without a name are not counted."""
        now: Any = time.perf_counter()
        if self._cuda:
            now = torch.cuda.Event(enable_timing=True)
            now.record(torch.cuda.current_stream(self._device))
        self._marks.append((part, now))

    def read(self) -> Seconds:
        """Seconds of the parts, and of everything until now. Call after the download."""
        total, spent = time.perf_counter() - self._begin, defaultdict[str, float](float)
        for (_, begin), (part, end) in pairwise(self._marks):
            spent[part] += begin.elapsed_time(end) / 1000 if self._cuda else end - begin
        return Seconds(spent["drafter"], spent["verifier"], total)
