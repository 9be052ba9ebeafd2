"""From texts to results: every figure of a sweep with its interval, and how the settings compare.

What is left to chance is which items were asked, so items are what is resampled, each with all its trials. A figure
is a ratio of sums, taken anew in each of `REPLICATES` resamples; the middle 95 % of these are its interval. All
settings are resampled alike, so that the difference of two is the difference of their replicates: what is hard about an
item is hard for both and cancels. Knows no model and no layout.

What such intervals cannot say: with items that all came out alike, or with one alone, they have no width.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from specviz.analysis.sweep.cost_model import CostModel
from specviz.analysis.sweep.results import Estimate, Point, Results
from specviz.analysis.sweep.sample import Sample, Timing
from specviz.analysis.sweep.setting import Setting
from specviz.core.methods import get_method

REPLICATES = 2000
SEED = 0
"""Of the resampling; the same everywhere, so that the same texts always give the same results."""

RATIOS = {
    "accuracy": ("score", "scored"),
    "log_probability": ("log_probability", "tokens"),
    "distance": ("distance", "tokens"),
    "greedy_agreement": ("greedy", "tokens"),
    "rejection_rate": ("rejected", "examined"),
    "verifier_calls": ("verifier_calls", "tokens"),
    "block_efficiency": ("tokens", "verifier_calls"),
}
"""Figures by what is summed over the items, above and below the line."""

COMPARED = ("accuracy", "log_probability")
"""Figures whose differences between settings are estimated."""

_NOISE = 1e-12
"""Differences below this are those of rounding."""

_Floats = npt.NDArray[np.float64]
_Mask = npt.NDArray[np.bool_]


def results(
    plan: Mapping[str, Any],
    drafter: str,
    verifier: str,
    dtype: str,
    settings: Sequence[Setting],
    items: int,
    samples: Sequence[Sample],
    timings: Sequence[Timing] = (),
    complete: bool = True,
) -> Results:
    """Estimate everything that these samples tell; their order does not matter.

    Args:
        plan, drafter, verifier, dtype, complete: as in `Results`.
        settings: what the samples' and timings' `setting` counts through; those without a sample are left out.
        items: how many there are; each sample's `item` is below.
        samples: of all settings, or of some; a setting is estimated from the items it has, a difference from
            those that both have.
        timings: of the texts that were timed.
    """
    tables = _sums(len(settings), items, samples)
    sweep = _Sweep(settings, _Resampled(tables))
    points = tuple(
        Point(
            setting,
            samples=int(tables["texts"][place].sum()),
            tokens=int(tables["tokens"][place].sum()),
            figures=sweep.figures(place),
            against_verifier=sweep.against_verifier(place),
            against_speed=sweep.against_speed(place),
            beats_both=sweep.beats_both(place),
        )
        for place, setting in enumerate(settings)
        if tables["texts"][place].any()
    )
    found = Results(dict(plan), drafter, verifier, dtype, items, points, complete)
    return with_latency(found, settings, timings) if timings else found


def with_latency(results: Results, settings: Sequence[Setting], timings: Sequence[Timing]) -> Results:
    """The same results with the relative latency that these timings tell, instead of what they had.

    Seconds a token ÷ verifier_only's at the same temperature, over the places at which both were timed; places are what
    is resampled.
    """
    timed = _Resampled(_times(len(settings), timings))
    places = {setting: place for place, setting in enumerate(settings)}

    def latency(setting: Setting) -> Estimate | None:
        own, baseline = places.get(setting), places.get(Setting(setting.temperature, "verifier_only", 0.0))
        if own is None or baseline is None:
            return None
        both = timed.has("tokens", own, baseline)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = [timed.ratio(place, "seconds", "tokens", both) for place in (own, baseline)]
            return _estimate(ratio[0] / ratio[1])

    points = []
    for point in results.points:
        figures = {name: one for name, one in point.figures.items() if name != "relative_latency"}
        if found := latency(point.setting):
            figures["relative_latency"] = found
        points.append(replace(point, figures=figures))
    return replace(results, points=tuple(points))


def cost_model(settings: Sequence[Setting], timings: Sequence[Timing], draft_length: int) -> CostModel | None:
    """What the pair's passes cost on the machine that timed these texts; None where too little was timed.

    Every text of both models is held against verifier_only's of the same item, timed at the same temperature:
    its seconds a proposal ÷ the verifier's seconds a token are c; the rest of its rounds, ÷ the same, is
    v(K) = 1 + s·(K − 1). Of all texts, at all temperatures since the passes are the same, the medians are taken: one text
    that the machine was slow at then does not count for more.
    """
    alone: dict[tuple[int, float], list[float]] = defaultdict(list)
    for one in timings:
        setting = settings[one.setting]
        if setting.method == "verifier_only" and one.tokens and one.seconds > 0:
            alone[one.place, setting.temperature].append(one.seconds / one.tokens)
    drafting, growth = [], []
    for one in timings:
        setting = settings[one.setting]
        method = get_method(setting.method)
        unit = alone.get((one.place, setting.temperature))
        if not (method.drafts and method.verifies and unit and one.drafted and one.rounds):
            continue
        a_token = median(unit)
        drafting.append(one.drafter_seconds / one.drafted / a_token)
        if draft_length > 1:
            verification = (one.seconds - one.drafter_seconds) / one.rounds / a_token
            growth.append((verification - 1) / (draft_length - 1))
    if not drafting:
        return None
    per_token = max(0.0, median(growth)) if growth else 0.0
    return CostModel(_rounded(median(drafting)), _rounded(per_token), draft_length)


def _sums(settings: int, items: int, samples: Sequence[Sample]) -> dict[str, _Floats]:
    """What figures are made of, each [settings, items]."""
    names = ("tokens", "examined", "accepted", "verifier_calls", "distance", "log_probability", "greedy")
    tables = {name: np.zeros((settings, items)) for name in (*names, "texts", "score", "scored")}
    # Sorted, since the last bits of a sum depend on its order.
    for one in sorted(samples, key=lambda one: (one.setting, one.item, one.trial)):
        place = one.setting, one.item
        for name in names:
            tables[name][place] += getattr(one, name)
        tables["texts"][place] += 1
        if one.score is not None:
            tables["score"][place] += one.score
            tables["scored"][place] += 1
    tables["rejected"] = tables["examined"] - tables["accepted"]
    # An item's trials are one answer to whether it is got right: their mean.
    tables["score"] /= np.maximum(tables["scored"], 1)
    tables["scored"] = (tables["scored"] > 0).astype(np.float64)
    return tables


def _times(settings: int, timings: Sequence[Timing]) -> dict[str, _Floats]:
    """Seconds and tokens, each [settings, timed places]."""
    places = max((one.place for one in timings), default=-1) + 1
    tables = {name: np.zeros((settings, places)) for name in ("seconds", "tokens")}
    for one in sorted(timings, key=lambda one: (one.setting, one.place, one.seconds)):
        for name, table in tables.items():
            table[one.setting, one.place] += getattr(one, name)
    return tables


@lru_cache(maxsize=4)
def _weights(units: int) -> _Floats:
    """How often each unit counts: once, and in every replicate as often as it is drawn. [1 + replicates, units]."""
    if not units:
        return np.ones((1, 0))
    # The old generator: its numbers are promised to stay the same from one numpy to the next.
    drawn = np.random.RandomState(SEED).multinomial(units, np.full(units, 1 / units), REPLICATES)
    return np.vstack([np.ones(units), drawn])


class _Resampled:
    """Ratios of sums over units (items, or timed places): over all of them first, then in every replicate."""

    def __init__(self, tables: Mapping[str, _Floats]) -> None:
        """Hold tables [settings, units]."""
        self._tables = tables
        self._weights = _weights(next(iter(tables.values())).shape[1])
        self._kept: dict[tuple[int, str, bytes], _Floats] = {}

    def has(self, below: str, *places: int) -> _Mask:
        """Units [units] with something below the line at all of these settings."""
        return np.all(self._tables[below][list(places)] > 0, axis=0)

    def ratio(self, place: int, above: str, below: str, units: _Mask) -> _Floats:
        """Sum over sum, of these units alone: [1 + replicates]; nan where there is nothing to divide by."""
        with np.errstate(divide="ignore", invalid="ignore"):
            found: _Floats = self._total(place, above, units) / self._total(place, below, units)
        return np.where(np.isfinite(found), found, np.nan)

    def _total(self, place: int, name: str, units: _Mask) -> _Floats:
        key = place, name, units.tobytes()
        if key not in self._kept:
            self._kept[key] = self._weights @ (self._tables[name][place] * units)
        return self._kept[key]


class _Sweep:
    """The settings of one sweep, each beside the others of its temperature."""

    def __init__(self, settings: Sequence[Setting], texts: _Resampled) -> None:
        self._settings, self._texts = settings, texts
        self._everywhere: dict[tuple[float, str], list[int]] = defaultdict(list)
        for place, setting in enumerate(settings):
            if texts.has("tokens", place).any():
                self._everywhere[setting.temperature, setting.method].append(place)

    def figures(self, place: int) -> dict[str, Estimate]:
        """A setting's own figures."""
        method = get_method(self._settings[place].method)
        found = {name: self._ratio(name, place, self._texts.has(RATIOS[name][1], place)) for name in RATIOS}
        # One model alone examines nothing: by definition the drafter's text is kept whole, the verifier's is all its own.
        if not (method.drafts and method.verifies):
            found["rejection_rate"] = np.zeros(1) if method.drafts else np.ones(1)
        return _estimates(found.items())

    def against_verifier(self, place: int) -> dict[str, Estimate]:
        """Differences to verifier_only over the items that both have."""
        baseline = self._baselines(place, "verifier_only")
        if baseline is None or place in baseline:
            return {}
        return _estimates((name, np.subtract(*self._shared(name, place, *baseline))) for name in COMPARED)

    def beats_both(self, place: int) -> str:
        """Whether a cascade's accuracy is above the better model's, chosen anew in each replicate."""
        baselines = self._baselines(place, "verifier_only", "drafter_only")
        if baselines is None or get_method(self._settings[place].method).rule is None:
            return "no"
        own, *others = self._shared("accuracy", place, *baselines)
        ahead = _estimate(own - np.maximum(*others))
        if ahead is None or ahead.value <= 0:
            return "no"
        return "surely" if ahead.low > 0 else "yes"

    def against_speed(self, place: int) -> dict[str, Estimate]:
        """Differences of a cascade to `speed` at the same rejection rate, linear between its leniences.

        Left out where its curve does not reach so far. In a replicate in which it does not, its nearer end is taken:
        to leave that replicate out would favour those in which the two are alike.
        """
        setting = self._settings[place]
        curve = self._everywhere.get((setting.temperature, "speed"), [])
        # At temperature 0 lenience changes nothing for `speed`: its curve is one point.
        if get_method(setting.method).rule is None or setting.temperature == 0 or len(curve) < 2:
            return {}
        found = {}
        for name in COMPARED:
            both = self._texts.has(RATIOS[name][1], place, *curve) & self._texts.has(
                "examined", place, *curve
            )
            own, *others = (self._ratio(name, one, both) for one in (place, *curve))
            rate, *rates = (self._ratio("rejection_rate", one, both) for one in (place, *curve))
            ends = [one[0] for one in rates]
            if min(ends) < max(ends) and min(ends) <= rate[0] <= max(ends):
                found[name] = own - _interpolated(np.stack(rates), np.stack(others), rate)
        return _estimates(found.items())

    def _baselines(self, place: int, *methods: str) -> list[int] | None:
        """Where these stand at the same temperature; None where one of them is missing."""
        temperature = self._settings[place].temperature
        found = [one for method in methods for one in self._everywhere.get((temperature, method), [])]
        return found if len(found) == len(methods) else None

    def _ratio(self, name: str, place: int, units: _Mask) -> _Floats:
        return self._texts.ratio(place, *RATIOS[name], units)

    def _shared(self, name: str, *places: int) -> list[_Floats]:
        """A figure of several settings over the items that all of them have."""
        units = self._texts.has(RATIOS[name][1], *places)
        return [self._ratio(name, place, units) for place in places]


def _interpolated(rates: _Floats, values: _Floats, wanted: _Floats) -> _Floats:
    """Piecewise linear curves [points, n], each at its own `wanted` [n]; beyond an end, the end."""
    order = np.argsort(rates, axis=0, kind="stable")
    x, y = np.take_along_axis(rates, order, 0), np.take_along_axis(values, order, 0)
    right = np.clip((x <= wanted).sum(axis=0), 1, len(x) - 1)[None]
    (x0, x1), (y0, y1) = (
        (np.take_along_axis(side, right - 1, 0)[0], np.take_along_axis(side, right, 0)[0]) for side in (x, y)
    )
    width = x1 - x0
    share = np.where(width > 0, (wanted - x0) / np.where(width > 0, width, 1), 0.5)
    found = y0 + np.clip(share, 0, 1) * (y1 - y0)
    return np.where(np.isnan(rates + values).any(axis=0), np.nan, found)


def _estimates(found: Iterable[tuple[str, _Floats]]) -> dict[str, Estimate]:
    each = ((name, _estimate(rows)) for name, rows in found)
    return {name: estimate for name, estimate in each if estimate is not None}


def _estimate(rows: _Floats) -> Estimate | None:
    """The first of `rows` and the interval of the others, as far as there are numbers; None where the first is none."""
    value, drawn = rows[0], rows[1:][np.isfinite(rows[1:])]
    if not np.isfinite(value):
        return None
    low, high = np.quantile(drawn, (0.025, 0.975)) if drawn.size else (value, value)
    return Estimate(_rounded(value), _rounded(min(low, value)), _rounded(max(high, value)))


def _rounded(value: float) -> float:
    """To six significant digits, so that results compare as files."""
    return 0.0 if abs(value) < _NOISE else float(f"{value:.6g}")
