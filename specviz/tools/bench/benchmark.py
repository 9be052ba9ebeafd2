"""A benchmark at work: all contenders on the same weights, prompts, seeds and threads, in turn, many times.

For every repetition, prompt and temperature all contenders run one after another, in an order that rotates, so that
whatever else the machine does affects all alike. Knows whom to run and in which order; knows no layout of a report.
"""

from __future__ import annotations

import itertools
import os
import statistics
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import torch

from specviz.compat.transformers import quiet_transformers
from specviz.errors import SpecvizError
from specviz.models.loading import load_pair
from specviz.models.modules import tune
from specviz.models.placement import dtype_name, find_device
from specviz.models.tokenizer import encode_prompt
from specviz.progress import Progress
from specviz.runtime.cpu.threads import budget, set_budget, worth_trying
from specviz.schema.settings import Request
from specviz.tools.bench.contender import Bed, Contender, Ours
from specviz.tools.bench.contenders import LENIENCE, SPEED, VERIFIER_ONLY, contenders
from specviz.tools.bench.measurements import Measured, Measurements, Participant, Sample
from specviz.tools.bench.memory import PeakMemory, bandwidth
from specviz.tools.bench.options import BenchmarkOptions, choose_prompts
from specviz.tools.bench.probes import measure_forwards, measure_overhead, measure_together
from specviz.tools.bench.shapes import find_temperature, shape_pair, tuned_twin
from specviz.tools.machine import describe_machine, describe_processor, versions

_WARM_UP_TOKENS = 8
_TRIALS = 2
_TOGETHER, _TOGETHER_REPETITIONS = 8, 16
"""Requests served at once, and how often: each of them alone twice, since how much drafting brings one alone differs from prompt to prompt."""
_LONGEST_BLOCK = 8
"""Bounds are searched up to this draft length."""
_INSPECTED = 10


def load_bed(options: BenchmarkOptions, progress: Progress) -> Bed:
    """Load the pair twice: as this project uses it, and as transformers does.

    Raises:
        PairError, RequestError: it cannot be loaded.
    """
    threads = options.threads or budget()
    set_budget(threads)
    if options.shape:
        device = find_device(options.device)
        plain = shape_pair(*options.shape, device, getattr(torch, dtype_name(options.dtype, device)))
        ours = tuned_twin(plain, tune)
    else:
        target: dict[str, Any] = {"device": options.device, "dtype": options.dtype}
        plain = load_pair(options.pair, **target, progress=progress, prepack=False)
        ours = load_pair(options.pair, **target, progress=progress)
    return Bed(ours, plain, threads, options.draft_length)


class _Stopped(Exception):  # noqa: N818
    """Asked to stop: what was measured is kept."""


class Benchmark:
    """One benchmark on one bed; `bench` always holds what was measured so far."""

    def __init__(
        self,
        options: BenchmarkOptions,
        bed: Bed,
        progress: Progress,
        stop: threading.Event | None = None,
        command: str = "python -m specviz bench",
    ) -> None:
        self.options, self.bed = options, bed
        self._progress, self._stop = progress, stop or threading.Event()
        self._all = contenders(bed, options.contenders, options.draft_lengths)
        chosen = choose_prompts(options.prompts)
        self._kinds = [kind for kind, _ in chosen]
        self._ids = [encode_prompt(bed.plain.tokenizer, Request(prompt=text)) for _, text in chosen]
        self._temperatures = list(options.temperatures)
        self._seconds: dict[str, list[float]] = {}  # of each contender's runs so far
        self._kept: Counter[str] = Counter()  # bytes that their earlier runs still hold on a GPU
        spin = os.environ.get("OMP_WAIT_POLICY", "not set")
        self.bench = Measurements(
            pair=bed.plain.title,
            drafter=bed.plain.drafter_name,
            verifier=bed.plain.verifier_name,
            device=str(bed.device),
            machine=describe_machine(str(bed.device)),
            processor=describe_processor(),
            versions=versions(),
            date=datetime.now(timezone.utc).date().isoformat(),
            command=command,
            dtype=bed.ours.precision,
            threads=bed.threads,
            tokens=options.tokens,
            repetitions=options.repetitions,
            temperatures=self._temperatures,
            draft_length=options.draft_length,
            draft_lengths=list(options.draft_lengths),
            seed=options.seed,
            notes=[f"OMP_WAIT_POLICY is {spin}: whether threads that wait spin."],
            prompts=[text for _, text in chosen],
        )

    def run(self) -> Measurements:
        """Measure everything, or until asked to stop, or until this project's own side fails."""
        begin = time.perf_counter()
        try:
            with quiet_transformers:
                self._measure()
            self.bench.complete = True
        except _Stopped:
            pass
        except SpecvizError as error:
            self.bench.notes.append(f"It broke off: {error}")
        self.bench.seconds = time.perf_counter() - begin
        if self.bench.complete:
            self._progress(1.0, "Measured")
        return self.bench

    def _measure(self) -> None:
        if self.options.acceptance is not None:
            found = find_temperature(self.bed.ours, self.options.acceptance, self._progress)
            self._temperatures[:] = [found]
            self.bench.notes.append(
                f"Temperature {found:g} was sought so that about {self.options.acceptance:.0%} of the proposals of "
                "two models with random weights are accepted."
            )
        self._progress(0.0, "Measuring the memory’s bandwidth")
        torch.set_num_threads(self.bed.threads)
        reads = bandwidth(self.bed.device)
        present = self._warm_up()
        self._interleave(present)
        if ours := [each for each in present if isinstance(each, Ours)]:
            self._probe(ours, reads)

    def _begin(self, fraction: float, stage: str) -> None:
        """Begin the next piece of work, unless asked to stop."""
        if self._stop.is_set():
            raise _Stopped
        self._progress(fraction, stage)

    # --- warming up

    def _warm_up(self) -> list[Contender]:
        """Run each contender once at every temperature; returns those that can take part."""
        participants, able = [], []
        for number, each in enumerate(self._all):
            self._begin(0.04 * number / len(self._all), f"Warming up: {each.name}")
            absent = each.unavailable() or self._try(each)
            participants.append(Participant(each.name, each.about, each.lossless, each.threads, absent))
            if not absent:
                able.append(each)
        self.bench.parties = participants
        return able

    def _try(self, contender: Contender) -> str:
        """Run a contender for the first time; returns why it cannot take part, if so."""
        longest = max(self._ids, key=len)
        # A compiled contender must have seen the longest text before it is timed.
        on_gpu = self.bed.device.type == "cuda"
        tokens = self.options.tokens if on_gpu else min(_WARM_UP_TOKENS, self.options.tokens)
        asked = Request(token_ids=longest, max_new_tokens=tokens, repetition_penalty=1.0)
        for temperature in self._temperatures:
            asked = replace(asked, temperature=temperature)
            try:
                measured, _ = self._once(contender, asked)
            except Exception as error:
                return _failure(contender, error)
            self._seconds[contender.name] = [measured.seconds * self.options.tokens / tokens]
        if not isinstance(contender, Ours) and self.bed.device.type == "cpu":
            self._choose_threads(contender, replace(asked, max_new_tokens=self.options.tokens))
        return ""

    def _choose_threads(self, contender: Contender, request: Request) -> None:
        """Others may use fewer threads than the budget, as this project does: the number that is fastest."""
        seconds: dict[int, list[float]] = {count: [] for count in worth_trying(self.bed.threads)}
        for _ in range(_TRIALS):
            for contender.threads in seconds:
                if self._stop.is_set():
                    raise _Stopped
                seconds[contender.threads].append(self._once(contender, request)[0].seconds)
        contender.threads = min(seconds, key=lambda count: min(seconds[count]))

    # --- whole runs

    def _interleave(self, present: list[Contender]) -> None:
        """All runs, in an order that rotates; a foreign contender that fails is removed from `present`."""
        options, bench = self.options, self.bench
        turns = list(
            itertools.product(range(options.repetitions), range(options.prompts), self._temperatures)
        )
        for done, (repetition, prompt, temperature) in enumerate(turns):
            seed = options.seed + prompt + 1000 * repetition
            asked = Request(
                token_ids=self._ids[prompt],
                seed=seed,
                temperature=temperature,
                max_new_tokens=options.tokens,
                repetition_penalty=1.0,
            )
            first = done % max(1, len(present))
            for contender in [*present[first:], *present[:first]]:
                left = (len(turns) - done) * sum(
                    statistics.mean(self._seconds[each.name]) for each in present
                )
                time_left = f"{left / 60:.0f} min" if left > 90 else f"{left:.0f} s"
                stage = f"Measuring: {contender.name}, about {time_left} left"
                self._begin(0.05 + 0.8 * done / len(turns), stage)
                try:
                    measured, memory = self._once(contender, asked)
                except Exception as error:
                    [party] = [each for each in bench.parties if each.name == contender.name]
                    party.absent = _failure(contender, error)
                    present.remove(contender)
                    continue
                self._seconds[contender.name].append(measured.seconds)
                bench.ended += not set(measured.token_ids).isdisjoint(self.bed.plain.eos_token_ids)
                bench.samples.append(
                    Sample(
                        **vars(measured),
                        contender=contender.name,
                        prompt=prompt,
                        kind=self._kinds[prompt],
                        temperature=temperature,
                        repetition=repetition,
                        memory=memory,
                    )
                )

    def _once(self, contender: Contender, request: Request) -> tuple[Measured, int | None]:
        """One run, and its peak memory in bytes where that can be measured."""
        torch.set_num_threads(contender.threads)
        peak, before = PeakMemory(self.bed.device), self._allocated()
        measured = contender.run(request)
        most, owner = peak.read(), "ours" if isinstance(contender, Ours) else contender.name
        kept, self._kept[owner] = self._kept[owner], self._kept[owner] + self._allocated() - before
        return measured, None if most is None else max(0, most + kept)

    def _allocated(self) -> int:
        """Bytes allocated on a GPU; 0 on other devices, where nothing is kept from run to run."""
        return torch.cuda.memory_allocated(self.bed.device) if self.bed.device.type == "cuda" else 0

    # --- what is measured beside them

    def _probe(self, ours: Sequence[Ours], reads: float) -> None:
        """Bare passes, overheads and eight requests at once; `reads` is a bandwidth measured before, bytes a second."""
        options, bed, bench = self.options, self.bed, self.bench
        self._begin(0.86, "Measuring bare forward passes")
        longest = max(_LONGEST_BLOCK, options.draft_length, *options.draft_lengths)
        torch.set_num_threads(bed.threads)
        reads = max(reads, bandwidth(bed.device))
        bench.forwards = measure_forwards(bed, self._ids[0], options.tokens, longest, reads)
        for method, lenience in (("verifier_only", 0.0), ("speed", 0.0), ("cascade_tokenV3", LENIENCE)):
            settings = {"method": method, "lenience": lenience, "draft_length": options.draft_length}
            for inspect in (0, _INSPECTED) if any(each.options["method"] == method for each in ours) else ():
                self._begin(0.88, f"Measuring what a round adds to its forward passes: {method}")
                probe = Ours(bed, method, "", **settings)
                bench.overheads.append(measure_overhead(probe, self._ids[0], options.tokens, inspect))
        prompts = [self._ids[i % len(self._ids)] for i in range(_TOGETHER)]
        repetitions = 1 if options.quick else _TOGETHER_REPETITIONS
        for name in (VERIFIER_ONLY, SPEED):
            self._begin(0.93, f"Measuring eight requests at once: {name}")
            for each in ours:
                if each.name == name:
                    bench.together.append(measure_together(each, prompts, options.tokens, repetitions))


def _failure(contender: Contender, error: Exception) -> str:
    """Why a foreign contender failed, in one line; our own errors are raised."""
    if isinstance(contender, Ours) or isinstance(error, SpecvizError):
        raise error
    first = (str(error).strip().splitlines() or [""])[0][:160]
    return f"It broke off: {type(error).__name__}{': ' if first else ''}{first}."
