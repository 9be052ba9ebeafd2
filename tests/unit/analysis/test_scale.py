"""The curves behind the lenience's scale; tests/browser/test_lenience.py has the scale."""

from __future__ import annotations

from itertools import pairwise

from specviz.analysis.sweep.scale import recorded_scales
from specviz.core.methods import METHODS, OWN_RULE

LENIENT = [
    name
    for name, method in METHODS.items()
    if method.has_lenience and not method.truncates and name != OWN_RULE
]
"""Methods that accept more with more lenience."""


def test_the_recorded_sweep_has_a_curve_of_every_method_that_lenience_speeds_up() -> None:
    recorded = recorded_scales()
    assert recorded is not None
    assert list(recorded["scales"]) == LENIENT
    assert (recorded["pair"], recorded["items"]) == ("embedded", 200)
    for method, curves in recorded["scales"].items():
        for _, curve in curves:
            assert (curve[0][0], curve[-1][0]) == METHODS[method].offered_range
            assert all(one[0] < other[0] and one[1] <= other[1] for one, other in pairwise(curve))
