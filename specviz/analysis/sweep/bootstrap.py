"""Intervals by resampling: ratios of sums over units, once over all of them and again in `REPLICATES` resamples.

What is left to chance in a sweep is which items were asked, so items (or timed items) are the units. All settings are
resampled alike: the difference of two settings is the difference of their replicates, and what is hard about an
item is hard for both and cancels. Arrays have the value over all units first, then one for each replicate. Knows no
setting and no figure.

What such intervals cannot say: with units that all came out alike, or with one alone, they have no width.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from specviz.analysis.statistics import rounded
from specviz.analysis.sweep.results import Estimate

REPLICATES = 2000
SEED = 0
"""Of the resampling; a constant, so that the same texts always give the same results."""

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


class Bootstrap:
    """Ratios of sums over units: over all of them first, then in every replicate."""

    def __init__(self, tables: Mapping[str, Floats]) -> None:
        """Hold tables [settings, units]."""
        self._tables = tables
        self._weights = _weights(next(iter(tables.values())).shape[1])
        self._totals: dict[tuple[int, str, bytes], Floats] = {}

    def has(self, below: str, *settings: int) -> Mask:
        """Which units [units] have a denominator at all of these settings."""
        return np.all(self._tables[below][list(settings)] > 0, axis=0)

    def ratio(self, setting: int, above: str, below: str, units: Mask) -> Floats:
        """Sum over sum, of these units alone: [1 + replicates]; nan where the denominator is 0."""
        with np.errstate(divide="ignore", invalid="ignore"):
            found: Floats = self._total(setting, above, units) / self._total(setting, below, units)
        return np.where(np.isfinite(found), found, np.nan)

    def _total(self, setting: int, name: str, units: Mask) -> Floats:
        key = setting, name, units.tobytes()
        if key not in self._totals:
            self._totals[key] = self._weights @ (self._tables[name][setting] * units)
        return self._totals[key]


@lru_cache(maxsize=4)
def _weights(units: int) -> Floats:
    """How often each unit counts: once, and in every replicate as often as it is drawn. [1 + replicates, units]."""
    if not units:
        return np.ones((1, 0))
    # The legacy generator: numpy promises that its numbers never change.
    drawn = np.random.RandomState(SEED).multinomial(units, np.full(units, 1 / units), REPLICATES)
    return np.vstack([np.ones(units), drawn])


def interpolated(rates: Floats, values: Floats, wanted: Floats) -> Floats:
    """Piecewise linear curves [points, n], each read at its own `wanted` [n]; beyond an end, the end."""
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


def estimate(replicates: Floats) -> Estimate | None:
    """The value over all units and the middle 95 % of the replicates that are numbers; None if the value is none."""
    value, drawn = replicates[0], replicates[1:][np.isfinite(replicates[1:])]
    if not np.isfinite(value):
        return None
    low, high = np.quantile(drawn, (0.025, 0.975)) if drawn.size else (value, value)
    return Estimate(rounded(value), rounded(min(low, value)), rounded(max(high, value)))


def estimates(found: Iterable[tuple[str, Floats]]) -> dict[str, Estimate]:
    """As `estimate`, by name; figures without a value are left out."""
    each = ((name, estimate(replicates)) for name, replicates in found)
    return {name: one for name, one in each if one is not None}
