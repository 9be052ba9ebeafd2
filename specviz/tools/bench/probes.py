"""Measured beside a benchmark's runs: bare forward passes, what a round adds to them, and eight requests at once.

Bare means the same models on the same KV cache at the same positions, without sampling, verification or a record.
Knows the engine and its cache; knows no prompt set and no report.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

import torch

from specviz.engine.events import Decided
from specviz.schema.settings import Request
from specviz.tools.bench.contender import Bed, Ours, timed
from specviz.tools.bench.measurements import Forwards, Overhead, Together
from specviz.tools.bench.memory import MemoryReader

_TRIES, _PAIRS = 9, 25
_OVERHEAD_RUNS = 2


class _Bare:
    """Both models with a KV cache filled to the middle of an answer."""

    @torch.inference_mode()
    def __init__(self, bed: Bed, prompt: Sequence[int], tokens: int, longest: int) -> None:
        self.device = bed.device
        self.start = len(prompt) + tokens // 2
        self._models = {}
        ids = [*prompt, *([prompt[-1]] * tokens)][: self.start]
        widths = [1 << step for step in range((longest - 1).bit_length() + 1)]
        for name, model in (("drafter", bed.ours.drafter_model), ("verifier", bed.ours.verifier_model)):
            slot = model.runner(bed.ours.vocabulary_size, beside=True)
            for _ in slot.warm_up(1, self.start + tokens + 32, widths):
                pass
            slot.admit([self], self.start + tokens + 32)
            positions = torch.arange(self.start, device=self.device)[None]
            slot.read(torch.tensor([ids], device=self.device), positions, visible=self.start)
            self._models[name] = slot
        self._token = prompt[-1]

    @torch.inference_mode()
    def round(self, passes: int, width: int) -> float:
        """Seconds of forward passes: `passes` of the drafter over one token, then the verifier's over `width`, if any."""

        inputs = [("drafter", *self._inputs(1, step)) for step in range(passes)]
        inputs += [("verifier", *self._inputs(width))] if width else []

        def work() -> None:
            for name, tokens, positions, visible in inputs:
                self._models[name].forward(tokens, positions, visible=visible, transient=True)

        return timed(self.device, work)[1]

    def _inputs(self, count: int, offset: int = 0) -> tuple[torch.Tensor, torch.Tensor, int]:
        """Of a pass: so many tokens, their positions, and how many positions it sees."""
        first = self.start + offset
        tokens = torch.full((1, count), self._token, device=self.device)
        positions = torch.arange(first, first + count, device=self.device)[None]
        return tokens, positions, first + count

    @property
    def is_fused(self) -> bool:
        """Whether the drafter runs its passes and draws in one call."""
        return self._models["drafter"].is_fused

    @torch.inference_mode()
    def draft(self, count: int) -> float:
        """Seconds of fused drafting of so many draft tokens, at T = 1."""
        drafter = self._models["drafter"]
        ids = torch.full((1, 1 + count), self._token)
        uniforms = torch.linspace(0, 0.9, count, dtype=torch.float64)[None]

        def work() -> None:
            q = torch.empty(1, count, drafter.vocabulary_size)
            drafter.draft(ids, q, [count], [self.start], 1.0, uniforms)

        return timed(self.device, work)[1]


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
        for count, times in enumerate(verifier, 1):
            pair = bare.round(1, 0), bare.round(0, count)
            if attempt:  # the first pass of a shape pays for its set-up
                drafter.append(pair[0])
                times.append(pair[1])
    models = bed.ours.drafter_model, bed.ours.verifier_model
    drafter_bytes, verifier_bytes = (
        model.weight_bytes + runner.position_bytes * bare.start
        for model, runner in zip(models, bed.ours.runners(apart=True), strict=True)
    )
    draws: list[float] = []
    for attempt in range(_TRIES + 1 if bare.is_fused else 0):
        bare.round(0, 1)  # in a round the drafter's passes come after the verifier's, too
        seconds = bare.draft(bed.draft_length)
        if attempt:
            draws.append(seconds / bed.draft_length)
    reader = MemoryReader(bed.device)
    beside = [[bare.round(0, 1), reader.read()] for _ in range(_PAIRS)]
    return Forwards(
        positions=bare.start,
        drafter_seconds=statistics.median(drafter),
        verifier_seconds=list(map(statistics.median, verifier)),
        drafter_bytes=drafter_bytes,
        verifier_bytes=verifier_bytes,
        bandwidth=bandwidth,
        draft_length=bed.draft_length,
        draft_seconds=statistics.median(draws) if draws else None,
        beside=beside,
    )


def measure_overhead(contender: Ours, prompt: Sequence[int], tokens: int, inspect: int) -> Overhead:
    """The time of rounds beyond their bare passes, at T = 1.

    Measured outside the engine, so that emitting events is included; after every round the same passes are run bare, at
    the same shapes and the same cache length.
    """
    bed = contender.bed
    length = bed.draft_length if contender.options["method"] != "verifier_only" else 0
    found = Overhead(contender.name, inspect, length, [], [], [])
    torch.set_num_threads(bed.threads)
    for seed in range(_OVERHEAD_RUNS):
        bare = _Bare(bed, prompt, tokens, bed.draft_length)
        asked = _request(contender, prompt, seed, tokens, inspect=inspect)
        begin = time.perf_counter()
        for event in bed.engine.stream(asked):
            seconds = time.perf_counter() - begin
            if isinstance(event, Decided) and event.round.draft_length == length:
                bare.start = len(prompt) + len(event.run.token_ids) - len(event.round.tokens)
                taken = bare.round(length, length or 1)
                if event.round.index:  # the first pass of a shape pays for its set-up
                    found.passes.append(length)
                    found.round_seconds.append(seconds)
                    found.bare_seconds.append(taken)
            begin = time.perf_counter()
    return found


def measure_together(
    contender: Ours, prompts: Sequence[Sequence[int]], tokens: int, repetitions: int
) -> Together:
    """Tokens a second of one request alone, and of all prompts served as one batch; in turn, at T = 1."""
    bed, found = contender.bed, Together(contender.name, len(prompts), [], [])
    for seed in range(repetitions):
        for chosen, speeds in (([prompts[seed % len(prompts)]], found.alone), (prompts, found.together)):
            torch.set_num_threads(bed.threads)
            requests = [_request(contender, ids, seed, tokens) for ids in chosen]
            runs, seconds = timed(bed.device, lambda asked=requests: bed.engine.generate(asked))  # type: ignore[misc]
            speeds.append(sum(len(run.token_ids) for run in runs) / seconds)
    return found


def _request(contender: Ours, prompt: Sequence[int], seed: int, tokens: int, **more: Any) -> Request:
    given = contender.options | more
    return Request(
        token_ids=list(prompt),
        seed=seed,
        temperature=1.0,
        max_new_tokens=tokens,
        repetition_penalty=1.0,
        **given,
    )
