"""Draws samples from engines and examines their counts."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import numpy as np

from specviz.analysis.audit import Counts, Finding, examine
from specviz.errors import EngineError, RequestError, StoppedError
from specviz.models.pair import ModelPair
from specviz.progress import Progress, part
from specviz.tools.audit.engines import BUILT_IN, Engine, find_engine, is_installed
from specviz.tools.audit.models import enumerate_law
from specviz.tools.bench.contenders import Bed

_MOST_SAMPLES, _MOST_TOKENS = 10_000_000, 8
_SEEDS = 2**31


@dataclass(frozen=True)
class AuditOptions:
    """What to audit; `specviz audit --help` describes each option.

    Raises:
        RequestError: a value is out of range, or a function of the user's is not given a temperature and a folder.
    """

    engines: tuple[str, ...] = ()
    samples: int = 2_000
    tokens: int = 3
    temperatures: tuple[float, ...] = (0.7, 1.0)
    models: Path | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not 100 <= self.samples <= _MOST_SAMPLES or not 1 <= self.tokens <= _MOST_TOKENS:
            raise RequestError(
                f"--samples must be from 100 to {_MOST_SAMPLES:,}, and --tokens from 1 to {_MOST_TOKENS}."
            )
        if not all(0.01 <= each <= 100 for each in self.temperatures):
            raise RequestError("--temperatures must be from 0.01 to 100.")
        if self.seed < 0:
            raise RequestError("--seed must be at least 0.")
        if any(":" in name for name in self.engines) and (len(self.temperatures) != 1 or not self.models):
            raise RequestError(
                "A function is told neither temperature nor models: give one of --temperatures, and --models."
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The engines that were asked for, or all built-in ones that are installed."""
        return self.engines or tuple(name for name in BUILT_IN if is_installed(name))

    @property
    def draft_length(self) -> int:
        """K of all engines: the last audited token follows a whole accepted block, so it may be a bonus token."""
        return max(1, self.tokens - 1)


@dataclass(frozen=True)
class Audited:
    """What was found of an engine at a temperature."""

    engine: str
    version: str
    temperature: float
    finding: Finding


def audit(
    pair: ModelPair, options: AuditOptions, progress: Progress, stop: threading.Event
) -> list[Audited]:
    """Audit every engine at every temperature.

    Raises:
        RequestError: an unknown engine, or too many sequences to enumerate.
        EngineError: an engine failed, or wrote too few tokens or unknown ones.
        StoppedError: `stop` was set.
    """
    laws = [enumerate_law(pair, options.tokens, each) for each in options.temperatures]
    bed = Bed(pair, pair, 1, options.draft_length)
    engines = {name: find_engine(name, bed) for name in options.names}
    found: list[Audited] = []
    total = len(engines) * len(laws)
    for name, engine in engines.items():
        for number, (temperature, law) in enumerate(zip(options.temperatures, laws, strict=True)):
            seeds = np.random.default_rng([options.seed, number]).integers(_SEEDS, size=options.samples)
            report = part(progress, len(found) / total, (len(found) + 1) / total)
            counts = np.zeros(law.shape, np.int64)
            _count(counts, name, engine, temperature, seeds.tolist(), report, stop)
            finding = examine(counts, law, options.seed)
            found.append(Audited(name, _version(name), temperature, finding))
    progress(1.0, "Audited")
    return found


def _count(
    counts: Counts,
    name: str,
    engine: Engine,
    temperature: float,
    seeds: list[int],
    progress: Progress,
    stop: threading.Event,
) -> None:
    """Add a sample for each seed to the counts."""
    for number, ids in enumerate(engine(counts.ndim, temperature, seeds)):
        if stop.is_set():
            raise StoppedError("The audit was stopped; nothing was written.")
        sequence = tuple(ids[: counts.ndim])
        if len(sequence) < counts.ndim or not all(0 <= token < counts.shape[0] for token in sequence):
            raise EngineError(
                f"{name} must write {counts.ndim} tokens, each from 0 to {counts.shape[0] - 1}; it wrote others."
            )
        counts[sequence] += 1
        if number % 50 == 0:
            progress(number / len(seeds), f"{name} at T = {temperature:g}: {number} of {len(seeds)} samples")


def _version(name: str) -> str:
    try:
        return metadata.version(name.partition(":")[0].partition(".")[0])
    except metadata.PackageNotFoundError:
        return ""
