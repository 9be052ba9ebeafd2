"""How often a method's drafts are accepted, and how good its texts are, at the leniences that a sweep measured.

`static/lenience_track/scale.js` makes a scale of these curves on which equal distances change the acceptance rate by about equal amounts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from specviz.analysis.sweep.folder import SHELF, SweepFolder
from specviz.analysis.sweep.results import Results
from specviz.core.methods import METHODS
from specviz.errors import TraceError

EVEN = 0.08
"""The share of a scale that is even in the lenience itself, so that a stretch where acceptance does not change is not lost."""
FLAT = 0.01
"""A curve that rises by less is flat: its scale is even in the lenience."""
QUALITIES = ("accuracy", "log_probability")
"""Figures of quality; the first one that all points of a sweep have is shown."""

Curve = list[tuple[float, float, float]]
"""(lenience, acceptance rate, quality) of the measured points, ascending; the acceptance rate never falls."""


@dataclass(frozen=True)
class Scales:
    """The curves of a sweep.

    Attributes:
        pair: the key of the pair that was measured.
        items: questions it was measured on.
        quality: which of `QUALITIES` the curves have.
        verifier: the verifier's own quality, by temperature.
        curves: by method and temperature, of the methods that were measured at the same leniences, both ends of their
            offered range included, at every temperature.
    """

    pair: str
    items: int
    quality: str
    verifier: Mapping[float, float]
    curves: Mapping[str, Mapping[float, Curve]]


def make_scales(results: Results) -> Scales | None:
    """The curves of a sweep's results; None where it has none."""
    quality = next((name for name in QUALITIES if all(name in each.figures for each in results.points)), None)
    if quality is None:
        return None
    curves = {}
    for name, method in METHODS.items():
        found = {heat: _curve(results, name, heat, quality) for heat in results.temperatures}
        measured = {tuple(lenience for lenience, _, _ in curve) for curve in found.values()}
        if method.has_lenience and len(measured) == 1:
            [leniences] = measured
            if leniences and (leniences[0], leniences[-1]) == tuple(method.offered_range):
                curves[name] = found
    alone = {heat: results.point(heat, "verifier_only") for heat in results.temperatures}
    verifier = {heat: point.figures[quality].value for heat, point in alone.items() if point}
    return Scales(results.plan.pair, results.items, quality, verifier, curves) if curves else None


def _curve(results: Results, method: str, temperature: float, quality: str) -> Curve:
    measured = sorted(
        (point.setting.lenience, 1 - point.figures["rejection_rate"].value, point.figures[quality].value)
        for point in results.at(temperature)
        if point.setting.method == method and "rejection_rate" in point.figures
    )
    curve: Curve = []
    for lenience, acceptance, figure in measured:
        highest = curve[-1][1] if curve else 0.0
        curve.append((lenience, max(acceptance, highest), figure))
    return curve


@cache
def recorded_scales() -> Scales | None:
    """Those of the project's own recorded sweep; None where there is none that can be read."""
    try:
        return make_scales(SweepFolder(SHELF).results())
    except TraceError:
        return None
