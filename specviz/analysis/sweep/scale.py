"""Curves of a sweep: acceptance rate and quality by lenience, for each method and temperature.

`static/lenience_track/scale.js` derives the lenience slider's scale from them: equal distances change the acceptance rate about equally.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from specviz.analysis.sweep.folder import SHELF, shown_sweeps
from specviz.analysis.sweep.results import Results
from specviz.core.methods import METHODS

EVEN = 0.08
"""Share of a scale that is linear in the lenience, so that leniences with equal acceptance rates still take up length."""
FLAT = 0.01
"""If an acceptance rate rises by less than this over the whole curve, the scale is linear in the lenience."""

Curve = list[tuple[float, float, float]]
"""(lenience, acceptance rate, accuracy) of the measured points, ascending; the acceptance rate never falls."""


@dataclass(frozen=True)
class Scales:
    """The curves of a sweep.

    Attributes:
        pair: the key of the pair that was measured.
        items: number of questions.
        verifier: the verifier's own accuracy, by temperature.
        curves: by method and temperature; only of methods that accept more with more lenience.
    """

    pair: str
    items: int
    verifier: Mapping[float, float]
    curves: Mapping[str, Mapping[float, Curve]]


@cache
def recorded_scales() -> Scales | None:
    """The curves of the recorded sweep that ships with SpecViz; None if it is missing or damaged."""
    found = {sweep.name: sweep for sweep in shown_sweeps().values()}.get(SHELF.name)
    return make_scales(found) if found else None


def make_scales(results: Results) -> Scales:
    """The curves of a sweep in which every method runs from end to end, at the same leniences at all temperatures."""
    # With min-p alone, a lenience accepts no more drafts.
    swept = [
        n
        for n in METHODS
        if n in results.plan.methods and METHODS[n].has_lenience and not METHODS[n].truncates
    ]
    curves = {name: {heat: _curve(results, name, heat) for heat in results.temperatures} for name in swept}
    alone = [point for point in results.points if point.setting.method == "verifier_only"]
    verifier = {point.setting.temperature: point.value("accuracy") for point in alone}
    return Scales(results.plan.pair, len(results.items), verifier, curves)


def _curve(results: Results, method: str, temperature: float) -> Curve:
    curve: Curve = []
    for point in results.at(temperature):  # the strict end first
        if point.setting.method == method:
            highest = curve[-1][1] if curve else 0.0
            acceptance = max(1 - point.value("rejection_rate"), highest)
            curve.append((point.setting.lenience, acceptance, point.value("accuracy")))
    return curve
