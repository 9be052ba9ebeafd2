"""Measured beside a benchmark: bare forward passes, what a round adds to them, and eight requests at once.

Bare means the same models on the same cache at the same positions, without a draw, a decision or a record. Knows the
engine and its cache; knows no prompt set and no report.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from specviz.engine.engine import Decided
from specviz.engine.step import asks
from specviz.runtime.cuda.workspace import Workspace, workspace
from specviz.runtime.machine import synchronize
from specviz.runtime.model_runner import SlotModel, position_bytes
from specviz.tools.bench.contenders import Bed, Ours
from specviz.tools.bench.measurements import Forwards, Overhead, Together

_TRIES = 9
_OVERHEAD_RUNS = 2


class _Bare:
    """Both models with a prompt read, standing in the middle of an answer."""

    @torch.inference_mode()
    def __init__(self, bed: Bed, prompt: Sequence[int], tokens: int, longest: int) -> None:
        self.device = bed.device
        self.start = len(prompt) + tokens // 2
        self._models = {}
        ids = [*prompt, *([prompt[-1]] * tokens)][: self.start]
        widths = [1 << step for step in range((longest - 1).bit_length() + 1)]
        for name, model in (("drafter", bed.ours.drafter), ("verifier", bed.ours.verifier)):
            # Captured like the engine's, but over buffers of its own: the engine has the model's.
            own = Workspace() if workspace(model) else None
            slot = SlotModel(model, bed.ours.vocabulary_size, own)
            for _ in slot.warm_up(1, self.start + tokens + 32, widths):
                pass
            slot.admit([self], self.start + tokens + 32)
            positions = torch.arange(self.start, device=self.device)[None]
            slot.read(torch.tensor([ids], device=self.device), positions, visible=self.start)
            self._models[name] = slot
        self._token = prompt[-1]

    def forward(self, name: str, count: int, offset: int = 0) -> None:
        """One pass of a model over `count` tokens."""
        first = self.start + offset
        tokens = torch.full((1, count), self._token, device=self.device)
        positions = torch.arange(first, first + count, device=self.device)[None]
        self._models[name].forward(tokens, positions, visible=first + count)

    @torch.inference_mode()
    def round(self, passes: int, width: int) -> float:
        """Seconds of a round's forward passes: so many of the drafter, and the verifier's over `width` tokens."""
        synchronize(self.device)
        begin = time.perf_counter()
        for step in range(passes):
            self.forward("drafter", 1, step)
        self.forward("verifier", width)
        synchronize(self.device)
        return time.perf_counter() - begin

    def seconds(self, name: str, count: int) -> float:
        """Seconds of one pass."""
        synchronize(self.device)
        begin = time.perf_counter()
        self.forward(name, count)
        synchronize(self.device)
        return time.perf_counter() - begin


@torch.inference_mode()
def measure_forwards(
    bed: Bed, prompt: Sequence[int], tokens: int, longest: int, bandwidth: float
) -> Forwards:
    """Medians of bare passes: the drafter's over one token, the verifier's over 1 to `longest`, one after another."""
    torch.set_num_threads(bed.threads)
    bare = _Bare(bed, prompt, tokens, longest)
    drafter: list[float] = []
    verifier: list[list[float]] = [[] for _ in range(longest)]
    for attempt in range(_TRIES + 1):
        for count in range(1, longest + 1):
            pair = bare.seconds("drafter", 1), bare.seconds("verifier", count)
            if attempt:  # the first pass of a shape pays for its set-up
                drafter.append(pair[0])
                verifier[count - 1].append(pair[1])
    weights = [weight_bytes(model) for model in (bed.plain.drafter, bed.plain.verifier)]
    cache = [position_bytes(model) * bare.start for model in (bed.plain.drafter, bed.plain.verifier)]
    return Forwards(
        positions=bare.start,
        drafter_seconds=statistics.median(drafter),
        verifier_seconds=[statistics.median(times) for times in verifier],
        drafter_bytes=weights[0] + cache[0],
        verifier_bytes=weights[1] + cache[1],
        bandwidth=bandwidth,
    )


def weight_bytes(model: Any) -> int:
    """Bytes of weights that one forward pass over a few tokens reads: all but tables of which it looks up rows."""
    tables = {m.weight.data_ptr(): m.weight for m in model.modules() if isinstance(m, nn.Embedding)}
    products = {m.weight.data_ptr() for m in model.modules() if isinstance(m, nn.Linear)}
    every = {weight.data_ptr(): weight for weight in model.parameters()}
    return sum(
        weight.numel() * weight.element_size()
        for place, weight in every.items()
        if place not in tables or place in products
    )


def measure_overhead(
    bed: Bed, contender: Ours, draft_length: int, prompt: Sequence[int], tokens: int, inspect: int
) -> Overhead:
    """What rounds take beyond their bare passes, at T = 1.

    By the clock outside the engine, so that telling is in it; after every round the same passes are made bare, at the
    same shapes and the same cache length.
    """
    drafts = contender.options["method"] != "verifier_only"
    length = draft_length if drafts else 0
    passes: list[int] = []
    rounds: list[float] = []
    bare_rounds: list[float] = []
    torch.set_num_threads(bed.threads)
    for seed in range(_OVERHEAD_RUNS):
        bare = _Bare(bed, prompt, tokens, draft_length)
        events = bed.engine.stream(contender.request(prompt, seed, 1.0, tokens, inspect))
        begin = time.perf_counter()
        for event in events:
            seconds = time.perf_counter() - begin
            if isinstance(event, Decided) and event.round.draft_length == length:
                bare.start = len(prompt) + len(event.run.token_ids) - len(event.round.tokens)
                drafted = len(event.round.proposals) if asks(bed.device) else length
                taken = bare.round(drafted, length or 1)
                if event.round.index:  # the first pass of a shape pays for its set-up
                    passes.append(drafted)
                    rounds.append(seconds)
                    bare_rounds.append(taken)
            begin = time.perf_counter()
    return Overhead(contender.name, inspect, length, passes, rounds, bare_rounds)


def measure_together(
    bed: Bed, contender: Ours, prompts: Sequence[Sequence[int]], tokens: int, repetitions: int
) -> Together:
    """Tokens a second of one request alone, and of all prompts served as one batch; in turn, at T = 1."""

    def speed(chosen: Sequence[Sequence[int]], seed: int) -> float:
        torch.set_num_threads(bed.threads)
        requests = [contender.request(ids, seed, 1.0, tokens) for ids in chosen]
        synchronize(bed.device)
        begin = time.perf_counter()
        runs = bed.engine.generate(requests)
        return sum(len(run.token_ids) for run in runs) / (time.perf_counter() - begin)

    alone, together = [], []
    for number in range(repetitions):
        alone.append(speed([prompts[number % len(prompts)]], number))
        together.append(speed(prompts, number))
    return Together(contender.name, len(prompts), alone, together)
