"""Curves of the recorded sweep: acceptance rate and accuracy by lenience, for each method and temperature.

`static/lenience_track/scale.js` derives the lenience slider's scale from them: equal distances change the acceptance rate about equally.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from specviz.analysis.sweep.folder import SHELF, shown_sweeps
from specviz.analysis.sweep.results import Results
from specviz.core.methods import METHODS

EVEN = 0.08
"""Share of a scale that is linear in the lenience, so that leniences with equal acceptance rates still take up length."""
FLAT = 0.01
"""If an acceptance rate rises by less than this over the whole curve, the scale is linear in the lenience."""
_DIGITS = 6


@cache
def recorded_scales() -> dict[str, Any]:
    """The curves, in the format that `scale.js` reads.

    "scales" has, for each method that accepts more with more lenience, [temperature, rows] with rows of [lenience, acceptance rate, accuracy];
    the first ascends, the second never falls. "verifier" has [temperature, the verifier's own accuracy].
    """
    (results,) = (sweep for sweep in shown_sweeps().values() if sweep.folder == SHELF)
    # With min-p alone, a lenience accepts no more drafts.
    swept = [
        name
        for name, method in METHODS.items()
        if name in results.plan.methods and method.has_lenience and not method.truncates
    ]
    alone = [point for point in results.points if point.setting.method == "verifier_only"]
    return {
        "pair": results.plan.pair,
        "items": len(results.items),
        "even": EVEN,
        "flat": FLAT,
        "verifier": [[point.setting.temperature, point.value("accuracy")] for point in alone],
        "scales": {
            name: [[heat, _curve(results, name, heat)] for heat in results.temperatures] for name in swept
        },
    }


def _curve(results: Results, method: str, temperature: float) -> list[list[float]]:
    curve: list[list[float]] = []
    for point in results.at(temperature):  # the strict end first
        if point.setting.method == method:
            acceptance = max(1 - point.value("rejection_rate"), curve[-1][1] if curve else 0.0)
            row = (point.setting.lenience, acceptance, point.value("accuracy"))
            curve.append([round(each, _DIGITS) for each in row])
    return curve
