"""How long the forward passes of a pair take, by the number of tokens they read."""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch

from specviz.runtime.cpu.threads import fastest
from specviz.runtime.cuda.graphs import PLAIN
from specviz.runtime.memory import synchronize
from specviz.runtime.runner import Runner

_DRAFTER_COUNTS, _VERIFIER_COUNTS = (1, 8), (1, 8, 2, 4, 16, 32)
"""Tokens of the timed passes, in that order: for a slow pair, only the first two are timed."""
_TRIES, _SECONDS = 6, 0.4
"""Repetitions, of which the fastest counts; and seconds after which timing ends, unless the first two passes are not yet timed."""

Curve = tuple[tuple[int, float], ...]
"""(tokens, seconds) of passes, by ascending number of tokens."""


@dataclass(frozen=True)
class PassTimes:
    """Seconds of forward passes, measured and interpolated."""

    drafter: Curve
    verifier: Curve

    def draft(self, tokens: int) -> float:
        """Seconds of a drafter pass over `tokens` tokens."""
        return _interpolated(self.drafter, tokens)

    def verify(self, tokens: int) -> float:
        """Seconds of a verifier pass over `tokens` tokens."""
        return _interpolated(self.verifier, tokens)


@torch.inference_mode()
def measure(drafter: Runner, verifier: Runner, longest: int) -> PassTimes:
    """Time a few passes, over at most `longest` tokens, of two runners without slots."""
    # On a GPU a drafter's pass over a few tokens takes as long as over one.
    drafts = _DRAFTER_COUNTS if drafter.device.type == "cpu" else _DRAFTER_COUNTS[:1]
    drafting = ((1, 0.0),) if drafter.looks_up else _curve(drafter, drafts, longest)
    return PassTimes(drafting, _curve(verifier, _VERIFIER_COUNTS, longest))


def _curve(runner: Runner, counts: Sequence[int], longest: int) -> Curve:
    counts = [count for count in counts if count <= longest]
    most, seconds = max(counts), dict[int, float]()
    tokens, positions = torch.zeros(2, 1, most, dtype=torch.long, device=runner.device)
    positions[0] = torch.arange(most, device=runner.device)

    def run(count: int) -> None:
        runner.forward(tokens[:, :count], positions[:, :count], visible=count, transient=True)
        synchronize(runner.device)

    runner.admit([None], most)
    try:
        run(counts[-1])  # the first pass of all reads weights from the disk
        if runner.device.type == "cuda":  # where the third pass of a shape is captured
            for count in [*counts] * (PLAIN + 1):
                run(count)
        end = time.perf_counter() + _SECONDS
        for count in [*counts] * _TRIES:
            if len(seconds) < min(2, len(counts)) or time.perf_counter() < end:
                seconds[count] = min(fastest(partial(run, count), 1), seconds.get(count, math.inf))
    finally:
        runner.release(None)
    return _monotone(sorted(seconds.items()))


def _monotone(measured: Sequence[tuple[int, float]]) -> Curve:
    """Correct disturbed timings: with the number of tokens, the time of a pass must not fall, and its time per token must not rise."""
    curve = [measured[0]]
    for count, seconds in measured[1:]:
        fewer, before = curve[-1]
        curve.append((count, min(max(seconds, before), before * count / fewer)))
    return tuple(curve)


def _interpolated(curve: Curve, tokens: int) -> float:
    """Seconds on the line through the two measurements around `tokens`, or through the nearest two outside the measured range."""
    if len(curve) == 1:
        return curve[0][1]
    counts = [count for count, _ in curve]
    right = min(max(1, bisect_left(counts, tokens)), len(curve) - 1)
    (low, before), (high, after) = curve[right - 1 : right + 1]
    return before + (after - before) * (tokens - low) / (high - low)
