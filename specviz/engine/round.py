"""One round of a batch: draft, verify, accept and resample on the device; then what was decided, on the host.

The paper's algorithm 4 for many sequences at once. Everything the device needs is uploaded before (`plan`); the host queues
work and waits for the device once, at the end. Knows a plan and two model runners; changes no sequence and ends no run.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from specviz.engine.accept import Accepted, Decision, Verified, accept, decide
from specviz.engine.draft import Drafted, draft, draft_last
from specviz.engine.plan import RoundPlan, select
from specviz.engine.record import DraftChoice, Outcome, Seconds, outcomes, tensors
from specviz.engine.transfer import download
from specviz.engine.verify import verify
from specviz.runtime.runner import Runner


@dataclass(frozen=True)
class RoundResult:
    """What a round came to.

    Attributes:
        outcomes: one a sequence.
        width: tokens that the verifier read of a sequence; 0 where it did not run.
        passes: of the drafter.
        seconds: what the round took.
    """

    outcomes: list[Outcome]
    width: int
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
    verified = [
        Verified.of(group, logits, drafted) if logits is not None and group.method.verifies else None
        for group in plan.groups
    ]
    accepted = _accept(plan, drafted, verified)
    if drafted and drafted.is_incomplete:
        drafted, accepted = _draft_last(plan, drafter, drafted, verified, accepted, watch)
    decisions = [
        decide(group, drafted, own_verified, own_accepted)
        for group, own_verified, own_accepted in zip(plan.groups, verified, accepted, strict=True)
    ]
    return _read_back(plan, decisions, drafted, 0 if logits is None else logits.shape[1], watch)


def _accept(
    plan: RoundPlan, drafted: Drafted | None, verified: list[Verified | None]
) -> list[Accepted | None]:
    """`accept` for the groups that both models run for."""
    return [
        accept(group, drafted, own) if drafted and own and group.method.drafts else None
        for group, own in zip(plan.groups, verified, strict=True)
    ]


def _draft_last(
    plan: RoundPlan,
    drafter: Runner,
    drafted: Drafted,
    verified: list[Verified | None],
    accepted: list[Accepted | None],
    watch: _Stopwatch,
) -> tuple[Drafted, list[Accepted | None]]:
    """Draft the K-th token where it will be examined: after K − 1 accepted ones, or where nothing is verified."""
    assert plan.draft is not None
    each = []
    for group, own in zip(plan.groups, accepted, strict=True):
        if own is not None:
            each.append(own.accepted == own.drafted)
        elif group.method.drafts:
            each.append(torch.ones_like(select(drafted.counts, group.drafted), dtype=torch.bool))
    wanted = select(torch.cat(each) if len(each) > 1 else each[0], plan.drafter_order)
    if not wanted.any():
        return drafted, accepted
    watch.mark()
    drafted = draft_last(plan.draft, drafter, drafted, wanted)
    watch.mark("drafter")
    whole = [own and own.whole(group) for group, own in zip(plan.groups, verified, strict=True)]
    return drafted, _accept(plan, drafted, whole)


def _read_back(
    plan: RoundPlan, decisions: list[Decision], drafted: Drafted | None, width: int, watch: _Stopwatch
) -> RoundResult:
    """Bring all decisions to the host in one download, and make the outcomes of them."""
    named = [tensors(decision) for decision in decisions]
    values = download(
        {(group, name): tensor for group, each in enumerate(named) for name, tensor in each.items()}
    )
    seconds = watch.read()
    choices = {}
    if drafted and plan.draft:
        drafting = zip(plan.draft.sequences, drafted.draft_lengths, drafted.confidences, strict=True)
        choices = {sequence: DraftChoice(length, tuple(q1)) for sequence, length, q1 in drafting}
    found = []
    for group, decision in enumerate(decisions):
        own = {name: values[group, name] for name in named[group]}
        found += outcomes(decision, own, choices, seconds)
    return RoundResult(found, width, drafted.passes if drafted else 0, seconds)


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
