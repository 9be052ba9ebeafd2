"""Recorded measurements of what drafting costs and gains, from reports of `specviz fit`, recorded sweeps and publications.

The unit of all costs is one token of the verifier alone.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from specviz.analysis.sweep.folder import SweepFolder, shown_sweeps
from specviz.analysis.sweep.grid import Setting
from specviz.analysis.sweep.results import Point, Results
from specviz.core.method import LOSSLESS
from specviz.core.methods import METHODS, PAPER
from specviz.resources import ASSETS

log = logging.getLogger(__name__)

FOLDER = ASSETS / "fits"
"""Folder of JSON reports of `specviz fit`, and of `published.json`."""
_PUBLISHED = "published.json"
_OPENS = "embedded"
"""Name of the report whose measurements come first."""


@dataclass(frozen=True)
class SpeedUp:
    """A measured speed-up over the verifier alone, and its 95 % interval. If the interval is unknown, `low` and `high` equal `value`.

    `kept` is the acceptance rate. `method` is the method's name if a sweep measured the speed-up; otherwise "", for lossless decoding.
    """

    draft_length: int
    kept: float
    value: float
    low: float
    high: float
    method: str = ""
    lenience: float = 0.0


@dataclass(frozen=True)
class Measurement:
    """A pair at a temperature on a machine. A round of draft length K costs 1 + K·draft + (K − 1)·check + rest.

    Attributes:
        group: the heading under which the page lists the measurement.
        title: what was measured, such as "T = 0: drafter → verifier".
        source: machine or publication.
        kept: acceptance rate of lossless decoding.
        draft: cost of a draft token.
        check: cost of each further token in a verifier pass, after the first token.
        rest: cost of everything else in a round.
    """

    group: str
    title: str
    source: str
    kept: float
    draft: float
    check: float
    rest: float
    speed_ups: tuple[SpeedUp, ...]


@cache
def measurements() -> tuple[Measurement, ...]:
    """All measurements, those of the embedded pair first. Reports that cannot be read are left out."""
    reports = [path for path in FOLDER.glob("*.json") if path.name != _PUBLISHED]
    found: list[Measurement] = []
    for path in sorted(reports, key=lambda path: (path.stem != _OPENS, path.stem)):
        try:
            found += list(_of_report(json.loads(path.read_text(encoding="utf-8"))))
        except (OSError, ValueError, LookupError, TypeError):
            log.warning("the report %s cannot be read: it is not shown", path.name)
    for title, sweep in shown_sweeps().items():
        found += _of_sweep(title, sweep)
    return (*found, *_published())


def split_cost(rounds: Iterable[tuple[int, float]], draft: float) -> tuple[float, float]:
    """Fit `Measurement.check` and `Measurement.rest`, both at least 0, by least squares to `rounds`: pairs (K, cost of a round)."""
    lengths, costs = np.array(list(rounds), dtype=float).T
    left, further = costs - 1 - draft * lengths, lengths - 1
    if further.min() < further.max():
        check, rest = np.polyfit(further, left, 1)
        if check >= 0 and rest >= 0:
            return float(check), float(rest)
        if check < 0:
            return 0.0, max(0.0, float(left.mean()))
    if not further.any():  # K = 1 alone
        return 0.0, max(0.0, float(left.mean()))
    return max(0.0, float(left @ further / (further @ further))), 0.0


def _of_report(report: dict[str, Any]) -> Iterator[Measurement]:
    """Yield one measurement per pair and temperature of a report of `specviz fit`."""
    for pair in report["pairs"]:
        for at in pair["temperatures"]:
            rows, kept = at["rows"], at["acceptance"]["value"]
            yield Measurement(
                "Lossless, by draft length",
                f"T = {at['temperature']:g}: {pair['drafter']} → {pair['verifier']}",
                report["about"]["machine"],
                kept,
                at["draft"],
                *split_cost(((row["draft_length"], row["cost"]) for row in rows), at["draft"]),
                tuple(
                    SpeedUp(row["draft_length"], kept, **row["measured"]) for row in rows if row["measured"]
                ),
            )


def _of_sweep(title: str, results: Results) -> Iterator[Measurement]:
    """Yield one measurement per temperature of a sweep. A sweep has one draft length, so `check` also contains `rest` (unless K = 1)."""
    length = results.plan.draft_length
    settings, sums = results.plan.settings, defaultdict[Setting, Any](lambda: np.zeros(5))
    for one in SweepFolder(results.folder).timings() if results.folder else []:
        sums[settings[one.setting]] += one.seconds, one.tokens, one.drafter_seconds, one.drafted, one.rounds
    for temperature in results.temperatures:
        if not (lossless := results.point(temperature, LOSSLESS)) or lossless.setting not in sums:
            continue
        verifier = sums[Setting(temperature, "verifier_only", 0.0)]
        alone = float(verifier[0] / verifier[1])  # seconds a token
        seconds, _, drafter_seconds, drafted, rounds = sums[lossless.setting].tolist()
        draft = drafter_seconds / drafted / alone
        yield Measurement(
            "Each method at its lenience",
            f"T = {temperature:g}: {title}",
            results.machine_words,
            1 - lossless.value("rejection_rate"),
            draft,
            *split_cost([(length, seconds / rounds / alone)], draft),
            tuple(_speed_ups(results.at(temperature), length)),
        )


def _speed_ups(points: Sequence[Point], draft_length: int) -> Iterator[SpeedUp]:
    """Yield the speed-up of each of the paper's methods at the timed lenience nearest to the method's default."""
    for name in PAPER:
        method = METHODS[name]
        timed = [one for one in points if one.setting.method == name and "relative_latency" in one.figures]
        if method.drafts and method.verifies and timed:
            point = min(timed, key=lambda one: abs(one.setting.lenience - method.default_lenience))
            time, lenience = point.figures["relative_latency"], point.setting.lenience
            ends = 1 / time.value, 1 / time.high, 1 / time.low
            yield SpeedUp(draft_length, 1 - point.value("rejection_rate"), *ends, name, lenience)


def _published() -> Iterator[Measurement]:
    for publication in json.loads((FOLDER / _PUBLISHED).read_text(encoding="utf-8")):
        for one in publication["measurements"]:
            point = SpeedUp(one["draft_length"], one["kept"], *[one["speed_up"]] * 3)
            costs = one["draft"], one.get("check", 0.0), one.get("rest", 0.0)
            yield Measurement(
                "Other machines", one["title"], publication["source"], one["kept"], *costs, (point,)
            )
