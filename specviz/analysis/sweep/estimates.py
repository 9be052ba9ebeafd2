"""From texts to results: every figure of a sweep with its interval, and how the settings compare.

Knows which sums make up a figure and which settings are held against which; how intervals come about is
`bootstrap`'s. Knows no model and no layout.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from specviz.analysis.sweep.bootstrap import Bootstrap, Floats, Mask, estimate, estimates, interpolated
from specviz.analysis.sweep.grid import Setting
from specviz.analysis.sweep.results import COMPARED, Estimate, Point, Results
from specviz.analysis.sweep.sample import Sample, Timing
from specviz.core.methods import get_method

RATIOS = {
    "accuracy": ("score", "scored"),
    "log_probability": ("log_probability", "tokens"),
    "distance": ("distance", "tokens"),
    "greedy_agreement": ("greedy", "tokens"),
    "rejection_rate": ("rejected", "examined"),
    "verifier_calls": ("verifier_calls", "tokens"),
    "block_efficiency": ("tokens", "verifier_calls"),
}
"""Numerator and denominator of each figure, both summed over the items."""


def estimate_points(settings: Sequence[Setting], items: int, samples: Sequence[Sample]) -> tuple[Point, ...]:
    """Estimate every figure from these samples, whose order does not matter; settings without a sample are left out.

    Args:
        settings: what the samples' `setting` is an index into.
        items: how many there are; each sample's `item` is below.
        samples: of all settings, or of some; a setting is estimated from the items it has, a difference from
            those that both have.
    """
    tables = _sums(len(settings), items, samples)
    figures = _Figures(settings, Bootstrap(tables))
    return tuple(
        Point(
            setting,
            samples=int(tables["texts"][index].sum()),
            tokens=int(tables["tokens"][index].sum()),
            figures=figures.of(index),
            against_verifier=figures.against_verifier(index),
            against_speed=figures.against_speed(index),
            ratios=figures.ratios(index),
            beats_both=figures.beats_both(index),
        )
        for index, setting in enumerate(settings)
        if tables["texts"][index].any()
    )


def with_latency(results: Results, settings: Sequence[Setting], timings: Sequence[Timing]) -> Results:
    """The same results with the relative latency of these timings, instead of the one they had.

    Seconds a token ÷ verifier_only's at the same temperature, over the timed items that both have; timed items are
    what is resampled.
    """
    timed = Bootstrap(_times(len(settings), timings))

    def latency(setting: Setting) -> dict[str, Estimate]:
        compared = setting, Setting(setting.temperature, "verifier_only", 0.0)
        if not set(compared) <= set(settings):
            return {}
        indices = [settings.index(one) for one in compared]
        both = timed.has("tokens", *indices)
        with np.errstate(divide="ignore", invalid="ignore"):
            own, baseline = (timed.ratio(index, "seconds", "tokens", both) for index in indices)
            return estimates([("relative_latency", own / baseline)])

    points = []
    for point in results.points:
        figures = {name: one for name, one in point.figures.items() if name != "relative_latency"}
        points.append(replace(point, figures=figures | latency(point.setting)))
    return replace(results, points=tuple(points))


def _sums(settings: int, items: int, samples: Sequence[Sample]) -> dict[str, Floats]:
    """Numerators and denominators, each [settings, items]."""
    names = ("tokens", "examined", "accepted", "verifier_calls", "distance", "log_probability", "greedy")
    tables = {name: np.zeros((settings, items)) for name in (*names, "texts", "score", "scored")}
    # Sorted, since the last bits of a sum depend on its order.
    for one in sorted(samples, key=lambda one: (one.setting, one.item, one.trial)):
        cell = one.setting, one.item
        for name in names:
            tables[name][cell] += getattr(one, name)
        tables["texts"][cell] += 1
        if one.score is not None:
            tables["score"][cell] += one.score
            tables["scored"][cell] += 1
    tables["rejected"] = tables["examined"] - tables["accepted"]
    # Whether an item was answered right is the mean of its trials.
    tables["score"] /= np.maximum(tables["scored"], 1)
    tables["scored"] = (tables["scored"] > 0).astype(np.float64)
    return tables


def _times(settings: int, timings: Sequence[Timing]) -> dict[str, Floats]:
    """Seconds and tokens, each [settings, timed items]."""
    count = max((one.index for one in timings), default=-1) + 1
    tables = {name: np.zeros((settings, count)) for name in ("seconds", "tokens")}
    for one in sorted(timings, key=lambda one: (one.setting, one.index, one.seconds)):
        for name, table in tables.items():
            table[one.setting, one.index] += getattr(one, name)
    return tables


class _Figures:
    """The figures of one sweep's settings, each beside the others of its temperature. Settings are given by index."""

    def __init__(self, settings: Sequence[Setting], texts: Bootstrap) -> None:
        self._settings, self._texts = settings, texts
        self._sampled: dict[tuple[float, str], list[int]] = defaultdict(list)
        for index, setting in enumerate(settings):
            if texts.has("tokens", index).any():
                self._sampled[setting.temperature, setting.method].append(index)

    def of(self, index: int) -> dict[str, Estimate]:
        """A setting's own figures."""
        method = get_method(self._settings[index].method)
        found = {name: self._ratio(name, index, self._texts.has(RATIOS[name][1], index)) for name in RATIOS}
        # One model alone examines nothing: by definition all the drafter's tokens are accepted, none before the verifier's.
        if not (method.drafts and method.verifies):
            found["rejection_rate"] = np.zeros(1) if method.drafts else np.ones(1)
        return estimates(found.items())

    def against_verifier(self, index: int) -> dict[str, Estimate]:
        """Differences to verifier_only over the items that both have."""
        baseline = self._baselines(index, "verifier_only")
        if baseline is None or index in baseline:
            return {}
        return estimates((name, np.subtract(*self._shared(name, index, *baseline))) for name in COMPARED)

    def ratios(self, index: int) -> dict[str, Estimate]:
        """A setting's accuracy ÷ the verifier's, and its rejection rate ÷ lossless decoding's, over the items that all have.

        Lossless decoding draws from the verifier's distribution, with other coins: where it was swept too, the verifier's
        accuracy is the mean of both, which leaves half as much to chance.
        """
        verifier = self._baselines(index, "verifier_only") or []
        lossless = [
            one
            for one in self._sampled.get((self._settings[index].temperature, "speed"), [])
            if self._settings[one].lenience == 0
        ]
        found = []
        for name, references in (
            ("accuracy", verifier and verifier + lossless),
            ("rejection_rate", lossless),
        ):
            if references:
                own, *others = self._shared(name, index, *references)
                with np.errstate(divide="ignore", invalid="ignore"):
                    found.append((name, own / np.mean(others, axis=0)))
        return estimates(found)

    def beats_both(self, index: int) -> str:
        """Whether a cascade's accuracy is above the better model's, chosen anew in each replicate."""
        baselines = self._baselines(index, "verifier_only", "drafter_only")
        if baselines is None or not get_method(self._settings[index].method).has_rule:
            return "no"
        own, *others = self._shared("accuracy", index, *baselines)
        ahead = estimate(own - np.maximum(*others))
        if ahead is None or ahead.value <= 0:
            return "no"
        return "surely" if ahead.low > 0 else "yes"

    def against_speed(self, index: int) -> dict[str, Estimate]:
        """Differences of a cascade to `speed` at the same rejection rate, linear between its leniences.

        Left out where its curve does not reach so far. In a replicate in which it does not, its nearer end is used:
        to leave that replicate out would favour those in which the two are alike.
        """
        setting = self._settings[index]
        curve = self._sampled.get((setting.temperature, "speed"), [])
        # At temperature 0 lenience changes nothing for `speed`: its curve is one point.
        if not get_method(setting.method).has_rule or setting.temperature == 0 or len(curve) < 2:
            return {}
        found = {}
        for name in COMPARED:
            both = self._texts.has(RATIOS[name][1], index, *curve) & self._texts.has(
                "examined", index, *curve
            )
            own, *others = (self._ratio(name, one, both) for one in (index, *curve))
            rate, *rates = (self._ratio("rejection_rate", one, both) for one in (index, *curve))
            ends = [one[0] for one in rates]
            if min(ends) < max(ends) and min(ends) <= rate[0] <= max(ends):
                found[name] = own - interpolated(np.stack(rates), np.stack(others), rate)
        return estimates(found.items())

    def _baselines(self, index: int, *methods: str) -> list[int] | None:
        """The settings of these methods at the same temperature; None if one of them is missing."""
        temperature = self._settings[index].temperature
        found = [one for method in methods for one in self._sampled.get((temperature, method), [])]
        return found if len(found) == len(methods) else None

    def _ratio(self, name: str, index: int, units: Mask) -> Floats:
        return self._texts.ratio(index, *RATIOS[name], units)

    def _shared(self, name: str, *settings: int) -> list[Floats]:
        """A figure of several settings over the items that all of them have."""
        units = self._texts.has(RATIOS[name][1], *settings)
        return [self._ratio(name, index, units) for index in settings]
