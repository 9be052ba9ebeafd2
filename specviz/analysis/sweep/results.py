"""The records of a sweep: a `Sample` per text, a `Timing` per timed text, and a `Point` of estimates per setting."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from specviz.analysis.sweep.grid import Setting, SweepGrid
from specviz.errors import TraceError

SCHEMA, VERSION = "specviz-sweep", 1
T = TypeVar("T")


@dataclass(frozen=True, order=True)
class Sample:
    """One row of a sweep's table: the answer to one item at one setting.

    Attributes:
        setting, item, trial: indices of the setting, the item and the trial.
        seed: seed of the uniforms; the same for all settings.
        text: the answer.
        tokens: number of emitted tokens, including an end-of-text token.
        examined, accepted, drafted: numbers of draft tokens; 0 examined if only one model ran.
        verifier_calls: forward passes of the verifier in rounds.
        score: score of the answer, in [0, 1]; None if the item has no reference answer.
        distance: sum over the tokens of TV(π, p), at the temperature of the run.
        log_probability: sum over the tokens of ln p1(token), at temperature 1.
        greedy: number of tokens that are the verifier's most probable.
        stop_reason: as in a trace.
        confidence, least_confidence: of a text that one model wrote alone: mean and minimum over the tokens of that model's largest
            probability, at temperature 1; None for other texts.
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


@dataclass(frozen=True)
class Timing:
    """The cost of one text served alone. `seconds` counts its rounds, without prefill.

    `item` is the item's index in the sweep, `index` its index among the timed items.
    """

    setting: int
    item: int
    index: int
    tokens: int
    seconds: float
    drafted: int
    drafter_seconds: float
    rounds: int


class Figure(NamedTuple):
    """A number of a setting: its title, what it is, its kind, and which direction is better."""

    title: str
    meaning: str
    is_quality: bool
    higher_is_better: bool
    is_share: bool


FIGURES: MappingProxyType[str, Figure] = MappingProxyType(
    {
        "accuracy": Figure("Questions right", "Share of the questions answered right.", True, True, True),
        "log_probability": Figure(
            "Log-probability per token",
            "How likely the verifier finds the text at temperature 1: the mean natural logarithm; 0 is most.",
            True,
            True,
            False,
        ),
        "distance": Figure(
            "Distance from the verifier",
            "Total variation between the distribution that the method follows and the verifier’s, a mean over tokens.",
            True,
            False,
            True,
        ),
        "greedy_agreement": Figure(
            "Verifier’s first choices",
            "Share of tokens that the verifier finds most probable.",
            True,
            True,
            True,
        ),
        "rejection_rate": Figure(
            "Drafts rejected", "Share of the draft tokens that the verifier turns down.", False, False, True
        ),
        "verifier_calls": Figure(
            "Verifier passes per token",
            "How often the verifier runs for a token; 1 by itself.",
            False,
            False,
            False,
        ),
        "relative_latency": Figure(
            "Time per token", "The verifier alone takes 100\u00a0%.", False, False, True
        ),
    }
)
"""All figures by name, quality first. A point has only those that were measured."""

COMPARED = ("accuracy", "log_probability")
"""Figures whose paired differences between settings are estimated."""


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
        against_verifier: differences of the `COMPARED` figures to verifier_only at the same temperature.
        against_speed: differences to `speed` at the same rejection rate, interpolated between its leniences; absent
            if the curve of `speed` does not reach that rate.
        against_min_p: differences to the most accurate setting of `lossless_min_p` that rejects no more drafts. If all reject more, to the
            most accurate of all; absent then if that is as accurate.
        ratios: "accuracy" over the verifier's, and "rejection_rate" over that of lossless decoding (`speed` at
            lenience 0).
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


_SIDES = ("figures", "against_verifier", "against_speed", "against_min_p", "ratios")


@dataclass(frozen=True)
class Results:
    """A whole sweep, or the part of it that is done.

    Attributes:
        plan: grid of the sweep.
        drafter, verifier, dtype: description of the pair.
        items: number of items.
        points: in the order of the plan's settings.
        complete: whether every planned text was written.
    """

    plan: SweepGrid
    drafter: str
    verifier: str
    dtype: str
    items: int
    points: tuple[Point, ...]
    complete: bool = True

    @property
    def temperatures(self) -> list[float]:
        """The measured temperatures, ascending."""
        return sorted({point.setting.temperature for point in self.points})

    def at(self, temperature: float) -> list[Point]:
        """The points of one temperature, in order."""
        return [point for point in self.points if point.setting.temperature == temperature]

    def point(self, temperature: float, method: str, lenience: float = 0.0) -> Point | None:
        """The point of one setting, if there is one."""
        wanted = Setting(temperature, method, lenience)
        return next((point for point in self.points if point.setting == wanted), None)

    def to_json(self) -> str:
        """The results as JSON text; equal results give equal text."""
        record = {"schema": SCHEMA, "version": VERSION} | asdict(self)
        return json.dumps(record, ensure_ascii=False, allow_nan=False, indent=1) + "\n"

    @staticmethod
    def from_json(text: str) -> Results:
        """Read what `to_json` wrote.

        Raises:
            TraceError: the text is damaged, of another version or no such record.
        """

        def build(record: dict[str, Any]) -> Results:
            plan, points = SweepGrid.from_record(record["plan"]), tuple(map(_point, record["points"]))
            return Results(**record | {"plan": plan, "points": points})

        return read_record(text, SCHEMA, VERSION, build)

    def to_csv(self) -> str:
        """A table with one row per point: its setting, its numbers of texts and tokens, and each figure with its interval."""
        columns = {name: ("figures", name) for name in FIGURES}
        columns |= {f"{name}_{side}": (side, name) for side in _SIDES[1:-1] for name in COMPARED}
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


def read_record(text: str, schema: str, version: int, build: Callable[[dict[str, Any]], T]) -> T:
    """Parse a JSON object of this schema and version, and pass it to `build`. Raises TraceError if it is something else."""
    try:
        record = json.loads(text)
        if (record.pop("schema"), record.pop("version")) == (schema, version):
            return build(record)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise TraceError(f"This {schema} is damaged or something else.") from error
    raise TraceError(f"This is no {schema} of version {version}.")


def _point(record: dict[str, Any]) -> Point:
    sides = {s: {name: Estimate(**one) for name, one in record.get(s, {}).items()} for s in _SIDES}
    return Point(**record | sides | {"setting": Setting(**record["setting"])})
