"""One round of a batch: draft, verify, accept and resample on the device; then what was decided, on the host.

The paper's algorithm 4 for many sequences at once. Everything the device needs is uploaded before (`plan`); the host queues
work and waits for the device once, at the end. Knows two model runners; changes no sequence and ends no run.
"""

from __future__ import annotations

import time
from collections import defaultdict
from itertools import pairwise
from typing import Any

import torch

from specviz.core.backend import Backend
from specviz.engine.accept import accept
from specviz.engine.draft import draft
from specviz.engine.plan import plan_round
from specviz.engine.record import Outcome, Seconds, outcomes, tensors
from specviz.engine.transfer import download
from specviz.engine.verify import verify
from specviz.runtime.cpu.threads import budget, limited_to
from specviz.runtime.runner import Runner

_MANY_NUMBERS = 1 << 22
"""Numbers in a round's distributions from which on deciding takes more than one thread."""


def run_round(
    drafter: Runner, verifier: Runner, automatic: int, backend: Backend
) -> tuple[list[Outcome], Seconds]:
    """Draft up to K tokens a sequence, verify all of them in one pass, accept or resample, and read the decisions back.

    Either model may be left out of a round: without a verifier every draft token stands, without a drafter one token a
    sequence is drawn from p. `automatic` is K where it is left to the engine.
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
        named = [tensors(decision, backend) for decision in decisions]
        values = download(
            {(group, name): tensor for group, own in enumerate(named) for name, tensor in own.items()}
        )
        seconds = watch.read()
        found = list[Outcome]()
        for group, decision in enumerate(decisions):
            own = {name: values[group, name] for name in named[group]}
            found += outcomes(decision, own, seconds)
    return found, seconds


class _Stopwatch:
    """Seconds since it was made and between marks, by the device's own clock where it has one."""

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
        """Seconds of the parts, and of everything until now. Call after the download."""
        total, spent = time.perf_counter() - self._begin, defaultdict[str, float](float)
        for (_, begin), (part, end) in pairwise(self._marks):
            on_host = isinstance(end, float)
            spent[part] += end - begin if on_host else begin.elapsed_time(end) / 1000
        return Seconds(spent["drafter"], spent["verifier"], total)
