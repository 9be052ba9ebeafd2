"""Curves of a sweep: acceptance rate and quality by lenience, for each method and temperature.

`static/lenience_track/scale.js` derives the lenience slider's scale from them: equal distances change the acceptance rate about equally.
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
"""Share of a scale that is linear in the lenience, so that leniences with equal acceptance rates still take up length."""
FLAT = 0.01
"""If an acceptance rate rises by less than this over the whole curve, the scale is linear in the lenience."""
QUALITIES = ("accuracy", "log_probability")
"""Figures of quality, best first. A sweep's curves use the first one that all its points have."""

Curve = list[tuple[float, float, float]]
"""(lenience, acceptance rate, quality) of the measured points, ascending; the acceptance rate never falls."""


@dataclass(frozen=True)
class Scales:
    """The curves of a sweep.

    Attributes:
        pair: the key of the pair that was measured.
        items: number of questions.
        quality: which of `QUALITIES` the curves have.
        verifier: the verifier's own quality, by temperature.
        curves: by method and temperature. Only of methods that were measured at the same leniences at every
            temperature, including both ends of their offered range, and that accept more with more lenience.
    """

    pair: str
    items: int
    quality: str
    verifier: Mapping[float, float]
    curves: Mapping[str, Mapping[float, Curve]]


def make_scales(results: Results) -> Scales | None:
    """The curves of a sweep's results; None if there are none."""
    quality = next((name for name in QUALITIES if all(name in each.figures for each in results.points)), None)
    if quality is None:
        return None
    curves = {}
    for name, method in METHODS.items():
        found = {heat: _curve(results, name, heat, quality) for heat in results.temperatures}
        measured = {tuple(lenience for lenience, _, _ in curve) for curve in found.values()}
        # With min-p alone, a lenience accepts no more drafts.
        if method.has_lenience and not method.truncates and len(measured) == 1:
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
    """The curves of the recorded sweep that ships with SpecViz; None if it is missing or damaged."""
    try:
        return make_scales(SweepFolder(SHELF).results())
    except TraceError:
        return None
