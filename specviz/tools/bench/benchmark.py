"""The benchmark: for every prompt, temperature and repetition all contenders run in turn, in an order that rotates.

So other work on the machine slows all contenders alike. A ratio compares two runs with the same prompt, temperature and
repetition.
"""

from __future__ import annotations

import itertools
import json
import statistics
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

import torch

from specviz.analysis.statistics import quartiles
from specviz.compat.transformers import quiet_transformers
from specviz.errors import RequestError, SpecvizError, StoppedError
from specviz.models.loading import load_pair
from specviz.models.modules import tune
from specviz.models.placement import dtype_name, find_device
from specviz.models.tokenizer import encode_prompt
from specviz.progress import Progress, silent
from specviz.runtime.cpu.threads import budget, worth_trying
from specviz.schema.settings import MAX_DRAFT_LENGTH, Request
from specviz.tools.bench.contenders import (
    GENERATE,
    VERIFIER_ALONE,
    Bed,
    Contender,
    Measured,
    contenders,
    timed,
)
from specviz.tools.bench.shapes import shape_pair, tuned_twin
from specviz.tools.distill.prompts import held_out_by_kind
from specviz.tools.machine import describe_machine, describe_processor, versions
from specviz.tools.templates import NONE, Rows, table

_TRIALS = 2
_READ_BYTES, _READS = 1 << 28, 25
"""Buffer size of the bandwidth probe in bytes, and number of reads."""


@dataclass(frozen=True)
class BenchmarkOptions:
    """What to measure.

    Attributes:
        pair: a key of the registry. `shape` replaces it: two names of `specviz.tools.bench.shapes`.
        contenders: keys; empty for all.
        tokens: new tokens of every run.
        prompts: number of held-out prompts, whose kinds alternate.
        draft_length: K of all contenders that draft a fixed number of tokens.
        sequences: concurrent sequences of the batch contenders.

    Raises:
        RequestError: a value is out of range.
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

    def __post_init__(self) -> None:
        most = {"tokens": 4096, "prompts": len(_held_out()), "draft_length": MAX_DRAFT_LENGTH}
        for name, high in (most | {"repetitions": 1000, "sequences": 256}).items():
            if not 1 <= (value := getattr(self, name)) <= high:
                raise RequestError(f"{name}: {value} was asked for; from 1 to {high} can be.")


def _held_out() -> list[str]:
    """Held-out prompts, whose kinds alternate."""
    return [text for texts in zip(*held_out_by_kind().values(), strict=False) for text in texts]


@dataclass(frozen=True)
class Run:
    """One run of a contender, with the prompt, temperature and repetition by which runs are compared."""

    contender: str
    prompt: int
    temperature: float
    repetition: int
    measured: Measured

    @property
    def key(self) -> tuple[int, float, int]:
        """Two runs are compared only if their keys are equal."""
        return self.prompt, self.temperature, self.repetition

    @property
    def speed(self) -> float:
        """Tokens per second, prefill included."""
        return self.measured.tokens / self.measured.seconds


class Benchmark:
    """A benchmark. If it is stopped, its results so far remain.

    Attributes:
        about: a description of what was measured, and on which machine.
        runs: all runs so far.
        notes: sentences about contenders that were left out, and about one forward pass.
        complete: whether it ran to its end.
    """

    def __init__(
        self,
        options: BenchmarkOptions,
        bed: Bed,
        progress: Progress = silent,
        stop: threading.Event | None = None,
        command: str = "python -m specviz bench",
    ) -> None:
        """Choose the contenders.

        Raises:
            RequestError: there is no such contender.
        """
        everyone = contenders(bed)
        known = [each.key for each in everyone]
        if unknown := set(options.contenders).difference(known):
            raise RequestError(f"There is no contender {min(unknown)!r}: known are {', '.join(known)}.")
        wanted = options.contenders or known
        self._present = [each for each in everyone if each.key in wanted]
        self.runs: list[Run] = []
        self.notes: list[str] = []
        self.complete = False
        self._options, self._bed, self._progress = options, bed, progress
        self._stop = stop or threading.Event()
        texts = _held_out()[: options.prompts]
        self._prompts = [encode_prompt(bed.plain.tokenizer, Request(prompt=text)) for text in texts]
        self.about = {
            "pair": bed.plain.title,
            "models": f"{bed.plain.drafter_name} → {bed.plain.verifier_name}, {bed.ours.precision}",
            "machine": f"{describe_machine(str(bed.device))} ({bed.device}); {describe_processor()}",
            "versions": ", ".join(
                f"{name} {version}" for name, version in versions("llama-cpp-python").items()
            ),
            "date": datetime.now(timezone.utc).date().isoformat(),
            "command": command,
            "runs": f"{options.prompts} prompts × {options.repetitions}, {options.tokens} new tokens each",
            "threads": f"at most {bed.threads}",
        }

    # --- measuring

    def measure(self) -> None:
        """Run all contenders, until done or stopped.

        Raises:
            SpecvizError: one of this project's contenders failed.
        """
        with quiet_transformers, suppress(StoppedError):
            for contender in list(self._present):
                self._progress(0.0, f"Warming up: {contender.title}")
                self._warm_up(contender)
            self._take_turns()
            if any(each.ours for each in self._present):
                self.notes.append(_one_token(self._bed, self._prompts[0]))
            self.complete = True
        self._progress(1.0, "Measured" if self.complete else "Stopped")

    def _warm_up(self, contender: Contender) -> None:
        """Run a contender once at each temperature. On a CPU, other projects' contenders get the fastest number of threads."""
        longest = max(self._prompts, key=len)
        for temperature in self._options.temperatures:
            request = self._request(longest, temperature)
            self._write(contender, request)
        if contender.ours or self._bed.device.type != "cpu":
            return  # this project chooses its threads when it loads a pair
        seconds = dict[int, float]()
        for contender.threads in worth_trying(self._bed.threads):
            trials = [self._write(contender, request) for _ in range(_TRIALS)]
            seconds[contender.threads] = min((each.seconds for each in trials if each), default=0.0)
        contender.threads = min(seconds, key=lambda count: seconds[count])

    def _take_turns(self) -> None:
        counts = range(self._options.repetitions), range(self._options.prompts)
        turns = list(itertools.product(*counts, self._options.temperatures))
        for done, (repetition, prompt, temperature) in enumerate(turns):
            seed = self._options.seed + prompt + 1000 * repetition
            request = self._request(self._prompts[prompt], temperature, seed)
            first = done % max(1, len(self._present))
            for contender in [*self._present[first:], *self._present[:first]]:
                self._progress(done / len(turns), f"Measuring: {contender.title}")
                if measured := self._write(contender, request):
                    self.runs.append(Run(contender.title, prompt, temperature, repetition, measured))

    def _request(self, prompt: list[int], temperature: float, seed: int = 0) -> Request:
        tokens = self._options.tokens
        return Request(
            token_ids=prompt,
            temperature=temperature,
            seed=seed,
            max_new_tokens=tokens,
            repetition_penalty=1.0,
        )

    def _write(self, contender: Contender, request: Request) -> Measured | None:
        """One run. None if another project's contender failed; it is then left out."""
        if self._stop.is_set():
            raise StoppedError("Stopped.")
        if contender not in self._present:
            return None
        torch.set_num_threads(contender.threads or self._bed.threads)
        try:
            return contender.write(request)
        except Exception as error:
            if contender.ours:
                raise
            self._present.remove(contender)
            self.notes.append(f"Left out: {contender.title}. {_reason(error)}")
            return None

    # --- reporting

    def rows(self) -> Rows:
        """The table: one row per temperature and contender, with medians, and quartiles in brackets."""
        head = ["temperature", "contender", "tokens/s", f"÷ {VERIFIER_ALONE}", f"÷ {GENERATE}"]
        rows: Rows = [(*head, "accepted", "first token, ms", "greedy texts equal")]
        temperatures, titles = (
            dict.fromkeys(getattr(run, name) for run in self.runs) for name in ("temperature", "contender")
        )
        for temperature, title in itertools.product(temperatures, titles):
            runs = [run for run in self.runs if (run.temperature, run.contender) == (temperature, title)]
            measured = [run.measured for run in runs]
            examined, accepted = (
                sum(getattr(each, name) for each in measured) for name in ("examined", "accepted")
            )
            first = [m.first_token_seconds for m in measured if m.first_token_seconds is not None]
            speed = _spread([run.speed for run in runs], ".1f")
            ratios = (
                _spread([run.speed / other.speed for run, other in self._pairs(runs, divisor)])
                for divisor in (VERIFIER_ALONE, GENERATE)
            )
            share = f"{accepted / examined:.2f}" if examined else NONE
            milliseconds = f"{1000 * statistics.median(first):.0f}" if first else NONE
            equal = self._equal_texts(runs) if temperature == 0 else NONE
            rows.append((f"{temperature:g}", title, speed, *ratios, share, milliseconds, equal))
        return rows

    def _pairs(self, runs: list[Run], other: str) -> list[tuple[Run, Run]]:
        """Pairs of a run and the other contender's run with the same prompt, temperature and repetition."""
        others = {run.key: run for run in self.runs if run.contender == other}
        return [(run, others[run.key]) for run in runs if run.key in others]

    def _equal_texts(self, runs: list[Run]) -> str:
        """A sentence that says how many texts equal the verifier's own."""
        pairs = [(one.measured, other.measured) for one, other in self._pairs(runs, VERIFIER_ALONE)]
        equal = [one.token_ids == other.token_ids for one, other in pairs if one.token_ids is not None]
        return f"{sum(equal)} of {len(equal)}" if equal else NONE

    def sentences(self) -> list[str]:
        """The sentences below the table."""
        return self.notes if self.complete else ["Incomplete: stopped before the end.", *self.notes]

    def markdown(self) -> str:
        """The report."""
        about = "\n".join(f"- {name}: {value}" for name, value in self.about.items())
        notes = "\n".join(f"- {sentence}" for sentence in self.sentences())
        return "\n\n".join([f"# Benchmark of {self.about['pair']}", about, table(self.rows()), notes]) + "\n"

    def to_json(self) -> str:
        """All runs, and the table."""
        content = {"about": self.about, "complete": self.complete, "notes": self.notes, "table": self.rows()}
        return json.dumps(content | {"runs": [asdict(run) for run in self.runs]}, indent=1) + "\n"


def _reason(error: Exception) -> str:
    """Why a contender was left out, as a sentence."""
    if isinstance(error, ModuleNotFoundError):
        return f"{error.name} is not installed."
    if isinstance(error, SpecvizError):
        return str(error)
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:160]}"


def _spread(values: list[float], form: str = ".2f") -> str:
    found = quartiles(values)
    return f"{found.median:{form}} ({found.low:{form}}–{found.high:{form}})" if found else NONE


def load_bed(options: BenchmarkOptions, progress: Progress) -> Bed:
    """Load the pair twice: as this project does, and as transformers does.

    Raises:
        PairError, RequestError: it cannot be loaded.
    """
    if options.shape:
        device = find_device(options.device)
        plain = shape_pair(*options.shape, device, getattr(torch, dtype_name(options.dtype, device)))
        ours = tuned_twin(plain, tune)
    else:
        target: dict[str, Any] = {"device": options.device, "dtype": options.dtype, "progress": progress}
        plain, ours = load_pair(options.pair, **target, prepack=False), load_pair(options.pair, **target)
    ids = [encode_prompt(plain.tokenizer, Request(prompt=text)) for text in _held_out()]
    others = list(itertools.islice(itertools.cycle(ids[1:]), options.sequences - 1))
    return Bed(ours, plain, budget(), options.draft_length, others)


@torch.inference_mode()
def _one_token(bed: Bed, prompt: list[int]) -> str:
    """A sentence that compares the verifier's forward pass over one token with reads of a buffer larger than any cache."""
    torch.set_num_threads(bed.threads)
    device, model, count = bed.device, bed.ours.verifier_model, len(prompt)
    runner: Any = model.runner(bed.ours.vocabulary_size, beside=True)
    for _ in runner.warm_up(1, count + 32, [1]):
        pass
    runner.admit([runner], count + 32)
    ids, positions = torch.tensor([prompt], device=device), torch.arange(count + 1, device=device)[None]
    runner.read(ids, positions[:, :count], visible=count)
    buffer = torch.ones(_READ_BYTES // (4 * 4096), 4096, device=device)  # float32: four bytes each
    vector = torch.ones(4096, device=device)

    def forward() -> None:
        runner.forward(ids[:, -1:], positions[:, count:], visible=count + 1, transient=True)

    passes, reads = list[float](), list[float]()
    for _ in range(_READS):
        passes.append(timed(device, forward)[1])
        reads += [timed(device, read)[1] for read in (buffer.sum, lambda: buffer @ vector)]
    size, seconds = model.weight_bytes + runner.position_bytes * count, statistics.median(passes)
    rate, memory = size / seconds, _READ_BYTES / min(reads)
    return (
        f"The verifier's forward pass over one token takes {1000 * seconds:.2f} ms: it reads {size / 1e6:.0f} MB "
        f"at {rate / 1e9:.1f} GB/s, {rate / memory:.0%} of the memory's {memory / 1e9:.1f} GB/s."
    )
