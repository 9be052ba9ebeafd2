"""What a sweep found: for each setting its figures with intervals, and how it compares with the others.

Plain data, to JSON and back, and as CSV. The one source of the figures' names, titles and directions. Knows neither
how anything was measured nor how intervals come about.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar

from specviz.analysis.sweep.grid import Setting
from specviz.errors import TraceError

SCHEMA, VERSION = "specviz-sweep", 1
T = TypeVar("T")


@dataclass(frozen=True)
class Figure:
    """A number of a setting: its title, which direction is better, and whether it is quality or cost."""

    title: str
    is_quality: bool
    higher_is_better: bool
    is_share: bool
    about: str


FIGURES: MappingProxyType[str, Figure] = MappingProxyType(
    {
        "accuracy": Figure("Task accuracy", True, True, True, "share of the items answered right"),
        "log_probability": Figure(
            "Verifier log-likelihood", True, True, False, "mean log p₁ of a token, natural, at temperature 1"
        ),
        "distance": Figure("TV(π, p)", True, False, True, "mean over the positions of a text"),
        "greedy_agreement": Figure(
            "Agreement with greedy", True, True, True, "share of the tokens that are the verifier’s favourite"
        ),
        "rejection_rate": Figure("Rejection rate", False, False, True, "rejected / examined proposals"),
        "relative_latency": Figure(
            "Relative latency", False, False, False, "seconds a token, one request alone, ÷ verifier_only’s"
        ),
        "verifier_calls": Figure("Verifier calls per token", False, False, False, "forward passes ÷ tokens"),
        "block_efficiency": Figure(
            "Tokens per verifier call", False, True, False, "all tokens ÷ all forward passes of the verifier"
        ),
    }
)
"""All figures by name, quality first. Not every point has every figure."""

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
    """One setting's figures.

    Attributes:
        samples: texts they are estimated from.
        tokens: in these texts.
        figures: by the names of `FIGURES`; absent where there is no such number.
        against_verifier: paired differences to verifier_only at the same temperature, of the figures in `COMPARED`.
        against_speed: paired differences to `speed` at this point's rejection rate, interpolated between its
            leniences; absent where its curve does not reach so far.
        ratios: paired ratios at the same temperature: of "accuracy" to the verifier's (the mean of verifier_only's and, if
            swept, lossless decoding's), of "rejection_rate" to lossless decoding's (`speed` at 0).
        beats_both: whether a cascade's accuracy is above that of both models alone: "no", "yes", or "surely" where the
            interval of the difference to the better of them lies above 0 too; "no" for all other methods.
    """

    setting: Setting
    samples: int
    tokens: int
    figures: Mapping[str, Estimate]
    against_verifier: Mapping[str, Estimate] = field(default_factory=dict)
    against_speed: Mapping[str, Estimate] = field(default_factory=dict)
    ratios: Mapping[str, Estimate] = field(default_factory=dict)
    beats_both: str = "no"


@dataclass(frozen=True)
class Results:
    """A whole sweep, or the part of it that is done.

    Attributes:
        plan: what was asked for, JSON-ready, by the names of `specviz.analysis.sweep.grid.SweepGrid`.
        drafter, verifier, dtype: of the pair.
        items: how many.
        points: in the order of the plan's settings.
        complete: whether everything that was planned is in it.
    """

    plan: Mapping[str, Any]
    drafter: str
    verifier: str
    dtype: str
    items: int
    points: tuple[Point, ...]
    complete: bool = True

    @property
    def temperatures(self) -> list[float]:
        """Ascending."""
        return sorted({point.setting.temperature for point in self.points})

    def at(self, temperature: float) -> list[Point]:
        """The points of one temperature, in order."""
        return [point for point in self.points if point.setting.temperature == temperature]

    def point(self, temperature: float, method: str, lenience: float = 0.0) -> Point | None:
        """The point of one setting, if there is one."""
        wanted = Setting(temperature, method, lenience)
        return next((point for point in self.points if point.setting == wanted), None)

    def to_json(self) -> str:
        """As text; the same results give the same text."""
        record = {"schema": SCHEMA, "version": VERSION} | asdict(self)
        return json.dumps(record, ensure_ascii=False, allow_nan=False, indent=1) + "\n"

    @staticmethod
    def from_json(text: str) -> Results:
        """Read what `to_json` wrote.

        Raises:
            TraceError: it is something else, damaged, or of another version.
        """

        def build(record: dict[str, Any]) -> Results:
            return Results(**record | {"points": tuple(map(_point, record["points"]))})

        return read_record(text, SCHEMA, VERSION, build)

    def to_csv(self) -> str:
        """One line a point: setting, texts, and each figure with the ends of its interval."""
        sides = {name: ("figures", name) for name in FIGURES}
        sides |= {
            f"{name}_{side}": (side, name)
            for side in ("against_verifier", "against_speed")
            for name in COMPARED
        }
        sides |= {f"{name}_ratio": ("ratios", name) for name in ("accuracy", "rejection_rate")}
        ends = {"": "value", "_low": "low", "_high": "high"}
        head = ["temperature", "method", "lenience", "samples", "tokens", "beats_both"]
        out = io.StringIO()
        writer = csv.DictWriter(
            out, head + [stem + end for stem in sides for end in ends], lineterminator="\n"
        )
        writer.writeheader()
        for point in self.points:
            row = {name: getattr(point, name) for name in head[3:]} | asdict(point.setting)
            for stem, (side, name) in sides.items():
                if found := getattr(point, side).get(name):
                    row |= {stem + end: getattr(found, field) for end, field in ends.items()}
            writer.writerow(row)
        return out.getvalue()


def read_record(text: str, schema: str, version: int, build: Callable[[dict[str, Any]], T]) -> T:
    """What `build` makes of a JSON object that names this schema and version; TraceError if it is something else."""
    try:
        record = json.loads(text)
        if (record.pop("schema"), record.pop("version")) == (schema, version):
            return build(record)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise TraceError(f"This {schema} is damaged or something else.") from error
    raise TraceError(f"This is no {schema} of version {version}.")


def _point(record: dict[str, Any]) -> Point:
    for side in ("figures", "against_verifier", "against_speed", "ratios"):
        record[side] = {name: Estimate(**one) for name, one in record.get(side, {}).items()}
    return Point(**record | {"setting": Setting(**record["setting"])})
