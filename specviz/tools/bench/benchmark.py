"""The benchmark: for every prompt, temperature and repetition, all contenders run in turn, in an order that rotates.

Thus other work on the machine slows all contenders alike. A ratio compares two runs with the same prompt, temperature and
repetition.
"""

from __future__ import annotations

import itertools
import json
import statistics
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from typing import Any

import numpy as np
import torch

from specviz.compat.transformers import quiet_transformers
from specviz.errors import RequestError, SpecvizError
from specviz.models.loading import load_pair
from specviz.models.placement import dtype_name, find_device
from specviz.models.tokenizer import encode_prompt
from specviz.progress import Progress, silent
from specviz.runtime.cpu.threads import budget, worth_trying
from specviz.schema.settings import Request
from specviz.tools.bench.contenders import GENERATE, VERIFIER_ALONE, Bed, Contender, Measured, contenders
from specviz.tools.bench.shapes import shape_pair
from specviz.tools.distill.prompts import held_out_by_kind
from specviz.tools.machine import describe_machine, describe_processor, versions
from specviz.tools.templates import NONE, Rows, table

_TRIALS = 2
"""Number of timed runs per thread count, to find the fastest count for another project's contender."""


@dataclass(frozen=True)
class BenchmarkOptions:
    """What to measure; `specviz bench --help` describes each option.

    Attributes:
        shape: drafter and verifier, as names in `specviz.tools.bench.shapes.SHAPES`. If given, `pair` is not used.
        contenders: keys of contenders; empty for all.
        prompts: maximum number of held-out prompts, whose kinds alternate.
    """

    pair: str = "embedded"
    shape: tuple[str, str] | None = None
    contenders: tuple[str, ...] = ()
    repetitions: int = 1
    tokens: int = 40
    temperatures: tuple[float, ...] = (0.0, 1.0)
    prompts: int = 14
    draft_length: int = 3
    sequences: int = 8
    device: str = "auto"
    dtype: str = "auto"
    seed: int = 0


def _held_out() -> list[str]:
    """Held-out prompts, whose kinds alternate."""
    return [text for texts in zip(*held_out_by_kind().values(), strict=False) for text in texts]


@dataclass(frozen=True)
class Turn:
    """One run of every contender, by title, with the same prompt, temperature and repetition."""

    prompt: int
    temperature: float
    repetition: int
    runs: dict[str, Measured] = field(default_factory=dict)


@dataclass
class Benchmark:
    """A benchmark. If it is interrupted, its results so far remain.

    Attributes:
        contenders: the chosen contenders, including those that were left out later.
        about: a description of what was measured, and on which machine.
        notes: sentences below the table, such as about contenders that were left out.
    """

    contenders: list[Contender]
    about: dict[str, str]
    turns: list[Turn] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    complete: bool = False

    def rows(self) -> Rows:
        """The table: one row per temperature and contender, with medians, and quartiles in brackets."""
        divisors = (VERIFIER_ALONE, GENERATE)
        head = ["temperature", "contender", "tokens/s", *(f"÷ {other}" for other in divisors)]
        rows: Rows = [(*head, "accepted", "first token, ms", "greedy texts equal")]
        temperatures = dict.fromkeys(turn.temperature for turn in self.turns)
        for temperature, contender in itertools.product(temperatures, self.contenders):
            title = contender.title
            turns = [
                turn.runs for turn in self.turns if turn.temperature == temperature and title in turn.runs
            ]
            if not turns:
                continue
            runs = [turn[title] for turn in turns]
            ratios = (
                _spread([turn[title].speed / turn[other].speed for turn in turns if other in turn])
                for other in divisors
            )
            examined, accepted = sum(run.examined for run in runs), sum(run.accepted for run in runs)
            first = [run.first_token_seconds for run in runs if run.first_token_seconds is not None]
            equal = [
                turn[title].token_ids == turn[VERIFIER_ALONE].token_ids
                for turn in turns
                if temperature == 0 and VERIFIER_ALONE in turn and turn[title].token_ids is not None
            ]
            cells = (
                _spread([run.speed for run in runs], ".1f"),
                *ratios,
                f"{accepted / examined:.2f}" if examined else NONE,
                f"{1000 * statistics.median(first):.0f}" if first else NONE,
                f"{sum(equal)} of {len(equal)}" if equal else NONE,
            )
            rows.append((f"{temperature:g}", title, *cells))
        return rows

    def markdown(self) -> str:
        """The report."""
        about = "\n".join(f"- {name}: {value}" for name, value in self.about.items())
        notes = "\n".join(f"- {sentence}" for sentence in self.notes)
        return "\n\n".join([f"# Benchmark of {self.about['pair']}", about, table(self.rows()), notes]) + "\n"

    def to_json(self) -> str:
        """All runs, by turn, and the table."""
        content = {"about": self.about, "complete": self.complete, "notes": self.notes, "table": self.rows()}
        return json.dumps(content | {"turns": [asdict(turn) for turn in self.turns]}, indent=1) + "\n"


def measure(
    options: BenchmarkOptions,
    bed: Bed,
    progress: Progress = silent,
    command: str = "python -m specviz bench",
) -> Benchmark:
    """Run all contenders, until done or interrupted by Ctrl-C.

    Raises:
        RequestError: there is no such contender, or an option of the requests is out of range.
        SpecvizError: one of this project's contenders failed.
    """
    known = {each.key: each for each in contenders(bed)}
    if unknown := set(options.contenders) - known.keys():
        raise RequestError(f"There is no contender {min(unknown)!r}: known are {', '.join(known)}.")
    present = [each for key, each in known.items() if key in (options.contenders or known)]
    prompts = [
        encode_prompt(bed.plain.tokenizer, Request(prompt=text)) for text in _held_out()[: options.prompts]
    ]
    found = Benchmark(list(present), _about(options, bed, len(prompts), command))

    def write(contender: Contender, prompt: list[int], temperature: float, seed: int = 0) -> Measured | None:
        """Run a contender once; None if it is left out. Another project's contender is left out after its first failure."""
        if contender not in present:
            return None
        torch.set_num_threads(contender.threads or bed.threads)
        settings: dict[str, Any] = {"max_new_tokens": options.tokens, "repetition_penalty": 1.0}
        try:
            return contender.write(Request(token_ids=prompt, temperature=temperature, seed=seed, **settings))
        except Exception as error:
            if contender.ours:
                raise
            present.remove(contender)
            found.notes.append(f"Left out: {contender.title}. {_reason(error)}")
            return None

    def warm_up(contender: Contender) -> None:
        """Run a contender once at each temperature. On a CPU, other projects' contenders get the fastest number of threads."""
        longest = max(prompts, key=len)
        for temperature in options.temperatures:
            write(contender, longest, temperature)
        if contender.ours or bed.device.type != "cpu":
            return  # this project chooses its threads when it loads a pair
        seconds = dict[int, float]()
        for contender.threads in worth_trying(bed.threads):
            trials = [write(contender, longest, temperature) for _ in range(_TRIALS)]
            seconds[contender.threads] = min((each.seconds for each in trials if each), default=0.0)
        contender.threads = min(seconds, key=lambda count: seconds[count])

    turns = list(itertools.product(range(options.repetitions), range(len(prompts)), options.temperatures))
    with quiet_transformers, suppress(KeyboardInterrupt):
        for contender in found.contenders:
            progress(0.0, f"Warming up: {contender.title}")
            warm_up(contender)
        for done, (repetition, prompt, temperature) in enumerate(turns):
            found.turns.append(Turn(prompt, temperature, repetition))
            first = done % max(1, len(present))
            for contender in [*present[first:], *present[:first]]:
                progress(done / len(turns), f"Measuring: {contender.title}")
                seed = options.seed + prompt + 1000 * repetition
                if measured := write(contender, prompts[prompt], temperature, seed):
                    found.turns[-1].runs[contender.title] = measured
        found.complete = True
    if not found.complete:
        found.notes.insert(0, "Incomplete: stopped before the end.")
    progress(1.0, "Measured" if found.complete else "Stopped")
    return found


def _about(options: BenchmarkOptions, bed: Bed, prompts: int, command: str) -> dict[str, str]:
    installed = versions("llama-cpp-python").items()
    return {
        "pair": bed.plain.title,
        "models": f"{bed.plain.drafter_name} → {bed.plain.verifier_name}, {bed.ours.precision}",
        "machine": f"{describe_machine(str(bed.device))} ({bed.device}); {describe_processor()}",
        "versions": ", ".join(f"{name} {version}" for name, version in installed),
        "date": datetime.now(timezone.utc).date().isoformat(),
        "command": command,
        "runs": f"{prompts} prompts × {options.repetitions}, {options.tokens} new tokens each",
        "threads": f"at most {bed.threads}",
    }


def _reason(error: Exception) -> str:
    """Why a contender was left out, as a sentence."""
    if isinstance(error, ModuleNotFoundError):
        return f"{error.name} is not installed."
    if isinstance(error, SpecvizError):
        return str(error)
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:160]}"


def _spread(values: list[float], form: str = ".2f") -> str:
    """Median and quartiles in words."""
    if not values:
        return NONE
    low, median, high = np.quantile(values, (0.25, 0.5, 0.75))
    return f"{median:{form}} ({low:{form}}–{high:{form}})"


def load_bed(options: BenchmarkOptions, progress: Progress) -> Bed:
    """Load the pair twice: as this project does, and as transformers does.

    Raises:
        PairError, RequestError: the pair cannot be loaded.
    """
    if options.shape:
        device = find_device(options.device)
        dtype = getattr(torch, dtype_name(options.dtype, device))
        plain, ours = (
            shape_pair(*options.shape, device, dtype, prepack=prepack) for prepack in (False, True)
        )
    else:
        target: dict[str, Any] = {"device": options.device, "dtype": options.dtype, "progress": progress}
        plain, ours = load_pair(options.pair, **target, prepack=False), load_pair(options.pair, **target)
    ids = [encode_prompt(plain.tokenizer, Request(prompt=text)) for text in _held_out()]
    others = list(itertools.islice(itertools.cycle(ids[1:]), options.sequences - 1))
    return Bed(ours, plain, budget(), options.draft_length, others)
