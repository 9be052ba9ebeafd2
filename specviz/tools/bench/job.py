"""The benchmark: everybody on the same weights, prompts, seeds and threads, in turn, many times.

For every repetition, prompt and temperature all contenders run one after another, in an order that rotates, so that
what else the machine does meets all alike. Knows whom to ask and in which order; knows no layout of a report.
"""

from __future__ import annotations

import datetime
import json
import os
import statistics
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from specviz.errors import RequestError, SpecvizError
from specviz.models.smollm2 import quiet_transformers
from specviz.models.tokenizer import encode_prompt
from specviz.progress import Progress
from specviz.runtime.cpu.threads import budget, set_budget, worth_trying
from specviz.runtime.machine import PeakMemory, bandwidth, describe_machine, describe_processor, versions
from specviz.schema.settings import MAX_DRAFT_LENGTH, Request
from specviz.tools.bench.contenders import (
    KEYS,
    SPEED,
    VERIFIER_ONLY,
    Bed,
    Contender,
    Measured,
    Ours,
    contenders,
)
from specviz.tools.bench.measurements import Bench, Party, Sample
from specviz.tools.bench.probes import measure_forwards, measure_overhead, measure_together
from specviz.tools.distill.texts import PROMPTS

if TYPE_CHECKING:
    from specviz.models.pairs import ModelPair

KINDS = ("facts", "stories", "code", "rewriting")
"""Kinds of held-out prompts that are asked, in turn."""
_WARM_UP_TOKENS = 8
_TRIALS = 2
_TOGETHER, _TOGETHER_REPETITIONS = 8, 5
_LONGEST_BLOCK = 8
"""Bounds are sought up to this draft length."""
_INSPECTED = 10


@dataclass(frozen=True)
class Plan:
    """What to measure.

    Attributes:
        pair: a key of the registry; or `shape`, two names of `specviz.tools.bench.shapes`.
        acceptance: with this, one temperature is sought at which about so many proposals are accepted.
        contenders: keys of `specviz.tools.bench.contenders.KEYS`.
        tokens: new ids of every run.
        prompts: how many, of four kinds in turn.
        draft_lengths: K of lossless speculative decoding at fixed K.
        draft_length: K of all others who draft a fixed number.
        threads: of everybody; 0 is torch's own choice.
        quick: a few short runs, to see that all works; its figures mean little.
    """

    pair: str = "embedded"
    shape: tuple[str, str] | None = None
    acceptance: float | None = None
    contenders: tuple[str, ...] = KEYS
    repetitions: int = 1
    tokens: int = 40
    temperatures: tuple[float, ...] = (0.0, 1.0)
    prompts: int = 12
    draft_lengths: tuple[int, ...] = (1, 2, 3, 5)
    draft_length: int = 3
    threads: int = 0
    device: str = "auto"
    dtype: str = "auto"
    seed: int = 0
    quick: bool = False

    def __post_init__(self) -> None:
        if unknown := [key for key in self.contenders if key not in KEYS]:
            raise RequestError(f"There is no contender {unknown[0]!r}: known are {', '.join(KEYS)}.")
        most = len(KINDS) * min(len(kind["held_out"]) for kind in _prompts().values())
        for name, value, low, high in (
            ("Repetitions", self.repetitions, 1, 1000),
            ("Tokens", self.tokens, 2, 4096),
            ("Prompts", self.prompts, 1, most),
            ("The draft length", self.draft_length, 1, MAX_DRAFT_LENGTH),
            ("Threads", self.threads, 0, 4096),
            *(("A draft length", k, 1, MAX_DRAFT_LENGTH) for k in self.draft_lengths),
        ):
            if not low <= value <= high:
                raise RequestError(f"{name}: {value} was asked for; from {low} to {high} can be.")
        if not self.contenders or not self.temperatures or min(self.temperatures) < 0:
            raise RequestError("Name at least one contender, and temperatures of at least 0.")
        if self.acceptance is not None and not 0 < self.acceptance < 1:
            raise RequestError(f"Acceptance {self.acceptance} was asked for; it must lie between 0 and 1.")
        if self.acceptance is not None and not self.shape:
            raise RequestError("An acceptance can be asked for with --shape only: a real pair has its own.")
        if self.quick:
            small = {"tokens": 12, "prompts": 2, "draft_lengths": (1, 3), "repetitions": 1}
            for name, few in small.items():
                object.__setattr__(self, name, few)


def _prompts() -> dict[str, dict[str, list[str]]]:
    every = json.loads(PROMPTS.read_text(encoding="utf-8"))
    return {kind: every[kind] for kind in KINDS}


def choose_prompts(count: int) -> list[tuple[str, str]]:
    """Kind and text of held-out prompts, the kinds in turn."""
    every = _prompts()
    return [
        (KINDS[i % len(KINDS)], every[KINDS[i % len(KINDS)]]["held_out"][i // len(KINDS)])
        for i in range(count)
    ]


def load_bed(plan: Plan, progress: Progress) -> Bed:
    """Load the pair twice: as this project uses it, and as transformers makes it.

    Raises:
        PairError, RequestError: it cannot be had.
    """
    from specviz.models.pairs import load_pair

    threads = plan.threads or budget()
    set_budget(threads)
    if plan.shape:
        ours, plain = _shaped(plan, plan.shape)
    else:
        places: dict[str, Any] = {"device": plan.device, "dtype": plan.dtype}
        plain = load_pair(plan.pair, **places, progress=progress, prepack=False)
        ours = load_pair(plan.pair, **places, progress=progress)
    return Bed(ours, plain, threads, plan.draft_length)


def _shaped(plan: Plan, names: tuple[str, str]) -> tuple[ModelPair, ModelPair]:
    from specviz.models.pairs import _device, _dtype_name, tune
    from specviz.tools.bench.shapes import shape_pair, tuned_twin

    device = _device(plan.device)
    dtype = getattr(torch, _dtype_name(plan.dtype, device))
    plain = shape_pair(*names, device, dtype)
    if device.type != "cpu":
        return tuned_twin(plain, tune), plain  # the weights are large
    return shape_pair(*names, device, dtype, tune), plain


class Stopped(Exception):  # noqa: N818
    """Asked to stop: what was measured is kept."""


class Job:
    """One benchmark on one bed; `bench` always holds what was measured so far."""

    def __init__(
        self,
        plan: Plan,
        bed: Bed,
        progress: Progress,
        stop: threading.Event | None = None,
        command: str = "python -m specviz bench",
    ) -> None:
        self.plan, self.bed = plan, bed
        self._progress, self._stop = progress, stop or threading.Event()
        self._all = contenders(bed, plan.contenders, plan.draft_lengths)
        chosen = choose_prompts(plan.prompts)
        self._kinds = [kind for kind, _ in chosen]
        self._ids = [encode_prompt(bed.plain.tokenizer, Request(prompt=text)) for _, text in chosen]
        self._temperatures = list(plan.temperatures)
        self._costs: dict[str, list[float]] = {}  # seconds of a contender's runs so far
        self._kept: Counter[str] = Counter()  # bytes that their earlier runs hold on a GPU
        self.bench = Bench(
            pair=bed.plain.title,
            drafter=bed.plain.drafter_name,
            verifier=bed.plain.verifier_name,
            device=str(bed.device),
            machine=describe_machine(str(bed.device)),
            processor=describe_processor(),
            versions=versions(),
            date=datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
            command=command,
            dtype=str(bed.plain.dtype).removeprefix("torch."),
            threads=bed.threads,
            tokens=plan.tokens,
            repetitions=plan.repetitions,
            temperatures=self._temperatures,
            draft_length=plan.draft_length,
            draft_lengths=list(plan.draft_lengths),
            seed=plan.seed,
            notes=[
                f"OMP_WAIT_POLICY is {os.environ.get('OMP_WAIT_POLICY', 'not set')}: whether threads that wait spin."
            ],
            prompts=[text for _, text in chosen],
        )

    def run(self) -> Bench:
        """Measure everything, or until asked to stop, or until this project's own side breaks off."""
        begin = time.perf_counter()
        try:
            with quiet_transformers():
                self._measure()
            self.bench.complete = True
        except Stopped:
            pass
        except SpecvizError as error:
            self.bench.notes.append(f"It broke off: {error}")
        self.bench.seconds = time.perf_counter() - begin
        if self.bench.complete:
            self._progress(1.0, "Measured")
        return self.bench

    def _measure(self) -> None:
        if self.plan.acceptance is not None:
            from specviz.tools.bench.shapes import find_temperature

            found = find_temperature(self.bed.ours, self.plan.acceptance, self._progress)
            self._temperatures[:] = [found]
            self.bench.notes.append(
                f"Temperature {found:g} was sought so that about {self.plan.acceptance:.0%} of the proposals of "
                "two models with random weights are accepted."
            )
        self._progress(0.0, "Measuring the memory’s bandwidth")
        torch.set_num_threads(self.bed.threads)
        reads = bandwidth(self.bed.device)
        taking_part = self._warm_up()
        self._interleave(taking_part)
        self._probe(taking_part, reads)

    def _warm_up(self) -> list[Contender]:
        """One run of everybody at every temperature; says who cannot take part."""
        longest = max(self._ids, key=len)
        parties, able = [], []
        for place, contender in enumerate(self._all):
            self._check_stop()
            self._progress(0.04 * place / len(self._all), f"Warming up: {contender.name}")
            absent = contender.unavailable()
            # Compiling must meet the longest text before it is timed.
            tokens = (
                self.plan.tokens if self.bed.device.type == "cuda" else min(_WARM_UP_TOKENS, self.plan.tokens)
            )
            for temperature in () if absent else self._temperatures:
                try:
                    measured, _ = self._once(contender, longest, temperature, tokens)
                except SpecvizError:
                    raise
                except Exception as error:
                    if isinstance(contender, Ours):
                        raise
                    absent = _failure(error)
                    break
                self._costs[contender.name] = [measured.seconds * self.plan.tokens / tokens]
            if not absent and not isinstance(contender, Ours):
                self._choose_threads(contender, longest, tokens)
            parties.append(
                Party(contender.name, contender.about, contender.lossless, contender.threads, absent)
            )
            able += [] if absent else [contender]
        self.bench.parties = parties
        return able

    def _choose_threads(self, contender: Contender, ids: Sequence[int], tokens: int) -> None:
        """Others may use fewer threads than the budget, as this project does: whichever number is fastest."""
        if self.bed.device.type != "cpu":
            return
        counts = worth_trying(self.bed.threads)
        taken: dict[int, list[float]] = {count: [] for count in counts}
        for _ in range(_TRIALS):
            for count in counts:
                self._check_stop()
                contender.threads = count
                taken[count].append(self._once(contender, ids, self._temperatures[-1], tokens)[0].seconds)
        contender.threads = min(counts, key=lambda count: min(taken[count]))

    def _interleave(self, taking_part: list[Contender]) -> None:
        plan, turn = self.plan, 0
        places = [
            (repetition, prompt, temperature)
            for repetition in range(plan.repetitions)
            for prompt in range(plan.prompts)
            for temperature in self._temperatures
        ]
        for done, (repetition, prompt, temperature) in enumerate(places):
            turn = done % max(1, len(taking_part))
            for contender in [*taking_part[turn:], *taking_part[:turn]]:
                self._check_stop()
                self._tell(taking_part, done, len(places), contender.name)
                seed = plan.seed + prompt + 1000 * repetition
                try:
                    measured, memory = self._once(
                        contender, self._ids[prompt], temperature, plan.tokens, seed
                    )
                except Exception as error:
                    if isinstance(contender, Ours) or isinstance(error, SpecvizError):
                        raise
                    self._drop(contender, taking_part, error)
                    continue
                self._costs[contender.name].append(measured.seconds)
                self._keep(contender, measured, memory, prompt, temperature, repetition)

    def _once(
        self, contender: Contender, ids: Sequence[int], temperature: float, tokens: int, seed: int = 0
    ) -> tuple[Measured, int | None]:
        torch.set_num_threads(contender.threads)
        peak, before = PeakMemory(self.bed.device), self._allocated()
        measured = contender.run(ids, seed, temperature, tokens)
        most, whose = peak.read(), "ours" if isinstance(contender, Ours) else contender.name
        kept, self._kept[whose] = self._kept[whose], self._kept[whose] + self._allocated() - before
        return measured, None if most is None else max(0, most + kept)

    def _allocated(self) -> int:
        """Bytes taken on a GPU; 0 on others, where nobody keeps anything from run to run."""
        return torch.cuda.memory_allocated(self.bed.device) if self.bed.device.type == "cuda" else 0

    def _keep(
        self,
        contender: Contender,
        measured: Measured,
        memory: int | None,
        prompt: int,
        temperature: float,
        repetition: int,
    ) -> None:
        self.bench.ended += not set(measured.token_ids).isdisjoint(self.bed.plain.eos_token_ids)
        self.bench.samples.append(
            Sample(
                contender=contender.name,
                prompt=prompt,
                kind=self._kinds[prompt],
                temperature=temperature,
                repetition=repetition,
                token_ids=measured.token_ids,
                seconds=measured.seconds,
                first_token_seconds=measured.first_token_seconds,
                rounds=measured.rounds,
                examined=measured.examined,
                accepted=measured.accepted,
                memory=memory,
            )
        )

    def _drop(self, contender: Contender, taking_part: list[Contender], error: Exception) -> None:
        """Somebody else's code broke off: it leaves, and the report says so."""
        taking_part.remove(contender)
        self.bench.parties = [
            replace(party, absent=_failure(error)) if party.name == contender.name else party
            for party in self.bench.parties
        ]

    def _tell(self, taking_part: list[Contender], done: int, places: int, name: str) -> None:
        per_place = sum(statistics.mean(self._costs[each.name]) for each in taking_part)
        left = per_place * (places - done)
        time_left = f"{left / 60:.0f} min" if left > 90 else f"{left:.0f} s"
        self._progress(0.05 + 0.8 * done / places, f"Measuring: {name}, about {time_left} left")

    def _probe(self, taking_part: list[Contender], reads: float) -> None:
        """Bare passes, overheads and eight at once."""
        plan, bed, own = self.plan, self.bed, {c.name: c for c in taking_part if isinstance(c, Ours)}
        if not own:
            return
        self._check_stop()
        self._progress(0.86, "Measuring bare forward passes")
        longest = max(_LONGEST_BLOCK, plan.draft_length, *plan.draft_lengths)
        torch.set_num_threads(bed.threads)
        reads = max(reads, bandwidth(bed.device))
        self.bench.forwards = measure_forwards(bed, self._ids[0], plan.tokens, longest, reads)
        for method, lenience in (("verifier_only", 0.0), ("speed", 0.0), ("cascade_tokenV3", 0.5)):
            if not any(each.options["method"] == method for each in own.values()):
                continue
            for inspect in (0, _INSPECTED):
                self._check_stop()
                self._progress(0.88, f"Measuring what a round adds to its forward passes: {method}")
                probe = Ours(bed, method, lenience, plan.draft_length, method, "")
                self.bench.overheads.append(
                    measure_overhead(bed, probe, plan.draft_length, self._ids[0], plan.tokens, inspect)
                )
        prompts = [self._ids[i % len(self._ids)] for i in range(_TOGETHER)]
        for name in (VERIFIER_ONLY, SPEED):
            self._check_stop()
            self._progress(0.93, f"Measuring eight requests at once: {name}")
            if name in own:
                repetitions = 1 if plan.quick else _TOGETHER_REPETITIONS
                self.bench.together.append(
                    measure_together(bed, own[name], prompts, plan.tokens, repetitions)
                )

    def _check_stop(self) -> None:
        if self._stop.is_set():
            raise Stopped


def _failure(error: Exception) -> str:
    """Why another's code broke off, in one line."""
    first = (str(error).strip().splitlines() or [""])[0][:160]
    return f"It broke off: {type(error).__name__}{': ' if first else ''}{first}."
