"""The records of a sweep: a `Sample` per text, a `Timing` per timed text, and a `Point` of estimates per setting."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from specviz.analysis.sweep.grid import Setting, SweepGrid
from specviz.analysis.sweep.items import Item
from specviz.errors import TraceError

TEXTS = "samples.jsonl.gz"
"""Name of the file that holds all texts of a sweep, in the sweep's folder."""


class Sample(NamedTuple):
    """One row of a sweep's table: the answer to one item at one setting.

    Attributes:
        setting, item, trial: indices of the setting, the item and the trial.
        seed: seed of the uniforms; the same for all settings.
        text: the answer.
        tokens: number of emitted tokens, including an end-of-text token.
        examined, accepted, drafted: numbers of draft tokens. If only one model ran, none are examined; `drafter_only` accepts all.
        verifier_calls: forward passes of the verifier in rounds.
        score: score of the answer, in [0, 1]; None if the item has no reference answer.
        distance: sum over the tokens of TV(π, p), at the temperature of the run.
        log_probability: sum over the tokens of ln p(token) of the verifier at temperature 1.
        greedy: number of tokens that are the verifier's most probable.
        stop_reason: as in a trace.
        confidence, least_confidence: if one model wrote the text alone, the mean and the minimum, over the tokens, of the largest
            probability in that model's distribution at temperature 1; otherwise None.
    """

    setting: int
    item: int
    trial: int
    seed: int
    text: str
    tokens: int
    examined: int
    accepted: int
    drafted: int
    verifier_calls: int
    score: float | None
    distance: float
    log_probability: float
    greedy: int
    stop_reason: str
    confidence: float | None = None
    least_confidence: float | None = None


class Timing(NamedTuple):
    """The cost of one text served alone. `seconds` counts its rounds, without prefill.

    `item` is the item's index in the sweep, `timed` its index among the timed items.
    """

    setting: int
    item: int
    timed: int
    tokens: int
    seconds: float
    drafted: int
    drafter_seconds: float
    rounds: int


class Figure(NamedTuple):
    """Describes a figure of a setting, for display. `is_share` figures are shown in percent."""

    title: str
    meaning: str
    is_quality: bool = False
    higher_is_better: bool = False
    is_share: bool = False


FIGURES: Mapping[str, Figure] = {
    "accuracy": Figure("Questions right", "Share of the questions answered right.", True, True, True),
    "log_probability": Figure(
        "Log-probability per token",
        "How likely the verifier finds the text at temperature 1: the mean natural logarithm; 0 is most.",
        is_quality=True,
        higher_is_better=True,
    ),
    "distance": Figure(
        "Distance from the verifier",
        "Total variation between the distribution that the method follows and the verifier’s, a mean over tokens.",
        is_quality=True,
        is_share=True,
    ),
    "greedy_agreement": Figure(
        "Verifier’s first choices", "Share of tokens that the verifier finds most probable.", True, True, True
    ),
    "rejection_rate": Figure(
        "Drafts rejected", "Share of the draft tokens that the verifier turns down.", is_share=True
    ),
    "verifier_calls": Figure(
        "Verifier passes per token", "How often the verifier runs for a token; 1 by itself."
    ),
    "relative_latency": Figure("Time per token", "The verifier alone takes 100\u00a0%.", is_share=True),
}
"""All figures by name, quality first. A point has only the figures that were measured."""

COMPARED = ("accuracy", "log_probability")
"""Names of the figures whose paired differences between settings are estimated."""


@dataclass(frozen=True)
class Estimate:
    """A number and its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Point:
    """The estimates of one setting.

    Attributes:
        samples: number of texts.
        tokens: number of tokens in these texts.
        figures: by the names in `FIGURES`.
        against_verifier: differences of the `COMPARED` figures from verifier_only at the same temperature.
        against_speed: differences from the method `speed` at the same rejection rate, interpolated between its leniences; empty if `speed`
            does not reach that rate. Like `against_min_p`, only for cascades above temperature 0.
        against_min_p: differences from the most accurate setting of `lossless_min_p` that rejects no more drafts than this setting. If all
            reject more, differences from the most accurate of them, or empty if that is at least as accurate as this setting.
        ratios: "accuracy" divided by the verifier's (the mean of `verifier_only` and lossless decoding, if both were measured), and
            "rejection_rate" divided by that of lossless decoding (`speed` at lenience 0).
        beats_both: whether a cascade is more accurate than both models: "no", "yes", or "surely" if the interval of
            the difference lies above 0.
    """

    setting: Setting
    samples: int
    tokens: int
    figures: Mapping[str, Estimate]
    against_verifier: Mapping[str, Estimate] = field(default_factory=dict)
    against_speed: Mapping[str, Estimate] = field(default_factory=dict)
    against_min_p: Mapping[str, Estimate] = field(default_factory=dict)
    ratios: Mapping[str, Estimate] = field(default_factory=dict)
    beats_both: str = "no"

    def value(self, figure: str) -> float:
        """The value of a figure that was measured."""
        return self.figures[figure].value


@dataclass(frozen=True)
class Header:
    """Identifies a sweep. Sweeps with equal headers have equal results."""

    plan: SweepGrid
    drafter: str
    verifier: str
    dtype: str
    items: tuple[Item, ...]

    @property
    def planned(self) -> int:
        """Number of planned texts."""
        return len(self.items) * sum(self.plan.trials_at(each.temperature) for each in self.plan.settings)


@dataclass(frozen=True)
class Results(Header):
    """A whole sweep, or the part of it that is done.

    Attributes:
        points: in the order of the plan's settings.
        complete: whether every planned text was written.
        given: the texts, unless they are in the `folder`.
        folder: the folder of a recorded sweep.
        machine: the machine of the timings, as `SweepFolder.machine`.
    """

    points: tuple[Point, ...]
    complete: bool = True
    given: Sequence[Sample] = field(default=(), compare=False, repr=False)
    folder: Path | None = field(default=None, compare=False)
    machine: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def name(self) -> str:
        """The sweep's name in links: its folder's name, which stays when its title changes; "" without a folder."""
        return self.folder.name if self.folder else ""

    @property
    def machine_words(self) -> str:
        """The machine of the timings, in words."""
        return ", ".join(self.machine[name] for name in ("machine", "processor") if name in self.machine)

    @property
    def temperatures(self) -> list[float]:
        """The measured temperatures, ascending."""
        return sorted({point.setting.temperature for point in self.points})

    def at(self, temperature: float) -> list[Point]:
        """The points of one temperature, in order."""
        return [point for point in self.points if point.setting.temperature == temperature]

    def point(self, temperature: float, method: str, lenience: float = 0.0) -> Point | None:
        """The point of one setting; None if it was not measured."""
        wanted = Setting(temperature, method, lenience)
        return next((point for point in self.points if point.setting == wanted), None)

    def samples(self, setting: int) -> list[Sample]:
        """The texts of the setting with this index, ordered by trial, then item.

        Raises:
            TraceError: they cannot be read.
        """
        found = [one for one in self.given if one.setting == setting]
        # Only what is shown is parsed: a sweep has tens of thousands of texts.
        found += [Sample(*json.loads(line)) for line in self._lines.get(b"[%d" % setting, ())]
        return sorted(found, key=lambda one: (one.trial, one.item))

    @cached_property
    def _lines(self) -> dict[bytes, list[bytes]]:
        """The lines of `packed_samples`, grouped by their beginning: b"[3" for setting 3. Lines of a setting are adjacent."""
        lines = packed_samples(self.folder) if self.folder else []
        return {first: list(group) for first, group in groupby(lines, lambda line: line.partition(b",")[0])}

    def to_csv(self) -> str:
        """A table with one row per point: its setting, its numbers of texts and tokens, and each estimate with its interval."""
        columns = {name: ("figures", name) for name in FIGURES}
        sides = ("against_verifier", "against_speed", "against_min_p")
        columns |= {f"{name}_{side}": (side, name) for side in sides for name in COMPARED}
        columns |= {f"{name}_ratio": ("ratios", name) for name in ("accuracy", "rejection_rate")}
        ends = {"": "value", "_low": "low", "_high": "high"}
        head = ["temperature", "method", "lenience", "samples", "tokens", "beats_both"]
        out = io.StringIO()
        names = head + [stem + end for stem in columns for end in ends]
        writer = csv.DictWriter(out, names, lineterminator="\n")
        writer.writeheader()
        for point in self.points:
            row = {name: getattr(point, name) for name in head[3:]} | asdict(point.setting)
            for stem, (side, name) in columns.items():
                if found := getattr(point, side).get(name):
                    row |= {stem + end: getattr(found, field) for end, field in ends.items()}
            writer.writerow(row)
        return out.getvalue()


def packed_samples(folder: Path) -> list[bytes]:
    """The lines of a finished sweep's table of texts; TraceError if it cannot be read."""
    try:
        with gzip.open(folder / TEXTS) as file:
            return list(file)
    except (OSError, EOFError) as error:
        raise TraceError("The texts of this sweep cannot be read.") from error
