"""A scale for a method's lenience on which equal ways change the acceptance rate by about equally much.

Made from a sweep: at each temperature a piecewise linear curve through the leniences that were measured. Knows
results; knows no page. `static/lenience_track/scale.js` reads the same curves in the browser.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from specviz.analysis.sweep.folder import SHELF, SweepFolder
from specviz.analysis.sweep.results import Point, Results
from specviz.core.methods import METHODS
from specviz.errors import TraceError

EVEN = 0.08
"""The share of the scale that is even in the lenience itself: a stretch where acceptance does not change keeps some room."""
FLAT = 0.01
"""A curve that rises by less is flat: its scale is even."""
QUALITIES = ("accuracy", "log_probability")
"""Figures that tell the quality of a text; the first one that a sweep has is shown."""


@dataclass(frozen=True)
class Knot:
    """A lenience that was measured: where on the scale it lies, from 0 to 1, the acceptance rate there, and the quality."""

    lenience: float
    position: float
    acceptance: float
    quality: float


@dataclass(frozen=True)
class Scale:
    """One method's scale at one temperature; knots ascend in lenience and in position."""

    knots: tuple[Knot, ...]

    def position(self, lenience: float) -> float:
        """Where a lenience lies, from 0 to 1."""
        return self._along("lenience", "position", lenience)

    def lenience(self, position: float) -> float:
        """The lenience at a place: the inverse of `position`."""
        return self._along("position", "lenience", position)

    def acceptance(self, lenience: float) -> float:
        """The share of draft tokens that is kept."""
        return self._along("lenience", "acceptance", lenience)

    def quality(self, lenience: float) -> float:
        """The quality of the text."""
        return self._along("lenience", "quality", lenience)

    def _along(self, of: str, to: str, value: float) -> float:
        xs = [getattr(knot, of) for knot in self.knots]
        ys = [getattr(knot, to) for knot in self.knots]
        value = min(max(value, xs[0]), xs[-1])
        left = min(bisect_right(xs, value), len(xs) - 1) - 1
        share = (value - xs[left]) / (xs[left + 1] - xs[left])
        return float(ys[left] * (1 - share) + ys[left + 1] * share)


def make_scale(points: Sequence[tuple[float, float, float]]) -> Scale:
    """The scale through measured (lenience, acceptance rate, quality), two or more, ascending in lenience.

    Where chance lets acceptance fall as the lenience rises, it is held: a scale goes one way.
    """
    lowest, highest = points[0][0], points[-1][0]
    kept: list[float] = []
    for _, acceptance, _ in points:
        kept.append(max([acceptance, *kept[-1:]]))
    gain = kept[-1] - kept[0]
    even = EVEN if gain > FLAT else 1.0
    knots = []
    for (lenience, _, quality), acceptance in zip(points, kept, strict=True):
        along = (lenience - lowest) / (highest - lowest)
        risen = (acceptance - kept[0]) / gain if even < 1 else 0.0
        knots.append(Knot(lenience, even * along + (1 - even) * risen, acceptance, quality))
    return Scale(tuple(knots))


@dataclass(frozen=True)
class Scales:
    """What a sweep knows of a pair's leniences.

    Attributes:
        pair: the key of the pair that was measured.
        items: prompts it was measured on.
        quality: which of `QUALITIES` the knots have.
        verifier: the verifier's own quality, by temperature.
        scales: by method and temperature; only those measured over their whole offered range.
    """

    pair: str
    items: int
    quality: str
    verifier: Mapping[float, float]
    scales: Mapping[str, Mapping[float, Scale]]

    def at(self, method: str, temperature: float) -> Scale | None:
        """A method's scale, between two measured temperatures as far between their figures; None beyond them."""
        measured = self.scales.get(method, {})
        ladder = sorted(measured)
        if not ladder or not ladder[0] <= temperature <= ladder[-1]:
            return None
        above = ladder[bisect_left(ladder, temperature)]
        below = ladder[bisect_right(ladder, temperature) - 1]
        share = 0.0 if above == below else (temperature - below) / (above - below)
        return make_scale(
            [
                (
                    low.lenience,
                    low.acceptance * (1 - share) + high.acceptance * share,
                    low.quality * (1 - share) + high.quality * share,
                )
                for low, high in zip(measured[below].knots, measured[above].knots, strict=True)
            ]
        )


def make_scales(results: Results) -> Scales | None:
    """The scales of a sweep's results; None where it has none.

    A method counts if the same leniences, with both ends of its offered range, were measured at all temperatures.
    """
    quality = next((name for name in QUALITIES if all(name in each.figures for each in results.points)), None)
    scales = {}
    for name, method in METHODS.items():
        curves = {heat: _curve(results, name, heat, quality) for heat in results.temperatures}
        measured = {tuple(each[0] for each in points) for points in curves.values()}
        if quality and method.has_lenience and len(measured) == 1:
            [leniences] = measured
            if (leniences[:1], leniences[-1:]) == (method.offered_range[:1], method.offered_range[1:]):
                scales[name] = {heat: make_scale(points) for heat, points in curves.items()}
    if quality is None or not scales:
        return None
    alone = {heat: results.point(heat, "verifier_only") for heat in results.temperatures}
    verifier = {heat: point.figures[quality].value for heat, point in alone.items() if point}
    return Scales(results.plan["pair"], results.items, quality, verifier, scales)


def _curve(
    results: Results, method: str, temperature: float, quality: str | None
) -> list[tuple[float, float, float]]:
    def row(point: Point) -> tuple[float, float, float]:
        figures = point.figures
        return point.setting.lenience, 1 - figures["rejection_rate"].value, figures[quality or ""].value

    points = [point for point in results.at(temperature) if point.setting.method == method]
    whole = [each for each in points if {"rejection_rate", quality} <= each.figures.keys()]
    return sorted(row(each) for each in whole)


@cache
def recorded_scales() -> Scales | None:
    """Those of the project's own recorded sweep; None where there is none that can be read."""
    try:
        return make_scales(SweepFolder(SHELF).results())
    except TraceError:
        return None
