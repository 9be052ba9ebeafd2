"""Draws samples from engines, examines their counts, and reports as Markdown that a maintainer can act on, and as JSON."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

import numpy as np

from specviz.analysis.audit import LEVEL, Finding, examine
from specviz.compat.transformers import quiet_transformers
from specviz.errors import EngineError, RequestError, StoppedError
from specviz.models.pair import ModelPair
from specviz.progress import Progress
from specviz.tools.audit.engines import BUILT_IN, find_engine, is_installed, is_url
from specviz.tools.audit.models import PROMPT, enumerate_law
from specviz.tools.bench.contenders import Bed
from specviz.tools.templates import render

_SEEDS = 2**31


@dataclass(frozen=True)
class AuditOptions:
    """What to audit; `specviz audit --help` describes each option.

    Raises:
        RequestError: a value is out of range; a function or server comes without `models`; a function comes with several temperatures.
    """

    engines: tuple[str, ...] = ()
    samples: int = 2_000
    tokens: int = 3
    temperatures: tuple[float, ...] = (0.7, 1.0)
    models: Path | None = None
    body: str = "{}"
    seed: int = 0

    def __post_init__(self) -> None:
        if not 100 <= self.samples <= 10_000_000 or not 1 <= self.tokens <= 8 or self.seed < 0:
            raise RequestError(
                "--samples must be from 100 to 10,000,000, --tokens from 1 to 8, and --seed at least 0."
            )
        if not all(0.01 <= each <= 100 for each in self.temperatures):
            raise RequestError("--temperatures must be from 0.01 to 100.")
        if self.others and not self.models:
            raise RequestError(
                "A function or a server is not told the models: give --models, the pair of its verifier."
            )
        if len(self.temperatures) != 1 and not all(map(is_url, self.others)):
            raise RequestError("A function is not told the temperature: give one of --temperatures.")

    @property
    def names(self) -> list[str]:
        """The names in `engines`, without repetitions; if there are none, the known engines that are installed."""
        return list(dict.fromkeys(self.engines)) or [name for name in BUILT_IN if is_installed(name)]

    @property
    def others(self) -> list[str]:
        """The functions and servers in `engines`."""
        return [name for name in self.engines if ":" in name]

    @property
    def draft_length(self) -> int:
        """K of all known engines. For an engine with bonus tokens, the last sampled token is the bonus token of an accepted block."""
        return max(1, self.tokens - 1)


@dataclass(frozen=True)
class Audited:
    """The finding for one engine at one temperature."""

    engine: str
    temperature: float
    finding: Finding


def audit(pair: ModelPair, options: AuditOptions, progress: Progress, stop: threading.Event) -> list[Audited]:
    """Audit every engine at every temperature.

    Raises:
        RequestError: an unknown engine, or too many sequences to enumerate.
        EngineError: an engine failed, or wrote too few tokens or unknown ones.
        StoppedError: `stop` was set.
    """
    laws = [enumerate_law(pair, options.tokens, each) for each in options.temperatures]
    bed = Bed(pair, pair, 1, options.draft_length)
    engines = {title(name): find_engine(name, bed, options.body) for name in options.names}
    found: list[Audited] = []
    for name, draw in engines.items():
        for number, (temperature, law) in enumerate(zip(options.temperatures, laws, strict=True)):
            seeds = np.random.default_rng([options.seed, number]).integers(_SEEDS, size=options.samples)
            counts = np.zeros(law.shape, np.int64)
            with quiet_transformers:
                for done, ids in enumerate(draw(options.tokens, temperature, seeds.tolist())):
                    if stop.is_set():
                        raise StoppedError("The audit was stopped; nothing was written.")
                    if len(ids) < options.tokens or not all(0 <= each < len(law) for each in ids):
                        raise EngineError(
                            f"{name} must write {options.tokens} tokens from 0 to {len(law) - 1}; it did not."
                        )
                    counts[tuple(ids[: options.tokens])] += 1
                    share = (len(found) + done / options.samples) / (len(engines) * len(laws))
                    progress(share, f"{name}, T = {temperature:g}: {done} of {options.samples} samples")
            found.append(Audited(name, temperature, examine(counts, law, options.seed)))
    progress(1.0, "Audited")
    return found


def title(name: str) -> str:
    """An engine's name, with the version of its package if it has one."""
    try:
        return f"{name} {metadata.version(name.partition(':')[0].partition('.')[0])}"
    except (metadata.PackageNotFoundError, ValueError):  # ValueError: no name at all
        return name


def markdown(found: Sequence[Audited], options: AuditOptions, about: Mapping[str, str]) -> str:
    """The report."""
    values = {"found": found, "options": options, "about": about, "prompt": PROMPT, "level": LEVEL}
    return render(Path(__file__).with_name("report.md.j2"), {}, **values)


def to_json(found: Sequence[Audited], options: AuditOptions, about: Mapping[str, str]) -> str:
    """All findings, as JSON."""
    audited = [{**asdict(each), "departs": each.finding.departs} for each in found]
    setting = {"tokens": options.tokens, "draft_length": options.draft_length, "prompt_ids": PROMPT}
    return json.dumps({**about, **setting, "audited": audited}, indent=1) + "\n"
