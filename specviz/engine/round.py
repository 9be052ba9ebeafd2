"""One round of a batch: draft, verify, accept and resample on the device; then what was decided, on the host.

The paper's algorithm 4 for many sequences at once. Everything the device needs is uploaded before (`plan`); the host queues
work and waits for the device once, at the end. Knows a plan and two model runners; changes no sequence and ends no run.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch

from specviz.engine.accept import accept
from specviz.engine.draft import draft
from specviz.engine.plan import AcceptInputs, RoundPlan
from specviz.engine.record import Outcome, Seconds, outcomes, tensors
from specviz.engine.sequence import Sequence
from specviz.engine.transfer import download
from specviz.engine.verify import verify
from specviz.runtime.runner import Runner


def run_round(plan: RoundPlan, drafter: Runner, verifier: Runner) -> tuple[list[Outcome], Seconds]:
    """Draft up to K tokens a sequence, verify all of them in one pass, accept or resample, and read the decisions back.

    Either model may be left out of a round: without a verifier every draft token stands, without a drafter one token a
    sequence is drawn from p.
    """
    watch = _Stopwatch(verifier.device, plan.began)
    drafted = draft(plan.draft, drafter).to(verifier.device) if plan.draft else None
    watch.mark("drafter")
    logits = verify(plan.verify, verifier, drafted) if plan.verify else None
    watch.mark("verifier")
    lengths = (
        dict(zip(plan.draft.sequences, drafted.draft_lengths, strict=True)) if plan.draft and drafted else {}
    )
    decisions = [accept(_as_drafted(group, lengths), drafted, logits) for group in plan.groups]
    named = [tensors(decision) for decision in decisions]
    values = download(
        {(group, name): tensor for group, each in enumerate(named) for name, tensor in each.items()}
    )
    seconds = watch.read()
    found = list[Outcome]()
    for group, decision in enumerate(decisions):
        own = {name: values[group, name] for name in named[group]}
        found += outcomes(decision, own, lengths, seconds)
    return found, seconds


def _as_drafted(group: AcceptInputs, lengths: dict[Sequence, int]) -> AcceptInputs:
    """A group with the largest K that was drafted in it."""
    return replace(group, draft_length=max(lengths.get(each, 1) for each in group.sequences))


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
