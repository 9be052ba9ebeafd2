"""What `static/lenience_track/scale.js` computes, written a second time: the scale of a lenience from a sweep's curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from specviz.analysis.sweep.scale import EVEN, FLAT


@dataclass(frozen=True)
class Scale:
    """One method's scale at one temperature; positions run from 0 to 1."""

    leniences: list[float]
    positions: list[float]
    acceptances: list[float]
    qualities: list[float]

    def position(self, lenience: float) -> float:
        return float(np.interp(lenience, self.leniences, self.positions))

    def lenience(self, position: float) -> float:
        return float(np.interp(position, self.positions, self.leniences))

    def acceptance(self, lenience: float) -> float:
        return float(np.interp(lenience, self.leniences, self.acceptances))

    def quality(self, lenience: float) -> float:
        return float(np.interp(lenience, self.leniences, self.qualities))


def make_scale(curve: Sequence[Sequence[float]]) -> Scale:
    """Even in the acceptance rate, but for a share; in the lenience where the curve is flat."""
    leniences, acceptances, qualities = (list(each) for each in zip(*curve, strict=True))
    gain = acceptances[-1] - acceptances[0]
    even = EVEN if gain > FLAT else 1.0
    along = (np.array(leniences) - leniences[0]) / (leniences[-1] - leniences[0])
    risen = (np.array(acceptances) - acceptances[0]) / (gain or 1.0)
    return Scale(leniences, list(even * along + (1 - even) * risen), acceptances, qualities)


def scale_at(scales: dict[str, Any], method: str, temperature: float) -> Scale:
    """A method's scale, linear between two measured temperatures."""
    curves = dict(scales["scales"][method])
    above = min(heat for heat in curves if heat >= temperature)
    below = max(heat for heat in curves if heat <= temperature)
    share = 0.0 if above == below else (temperature - below) / (above - below)
    mixed = np.array(curves[below]) * (1 - share) + np.array(curves[above]) * share
    return make_scale(mixed.tolist())
