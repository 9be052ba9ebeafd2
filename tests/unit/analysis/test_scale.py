"""The curves behind the lenience's scale, and the scale that follows: one way, invertible, even in the acceptance rate."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from specviz.analysis.sweep.scale import recorded_scales
from specviz.core.methods import METHODS, OWN_RULE
from tests.support.scales import scale_at

LENIENT = [
    name
    for name, method in METHODS.items()
    if method.has_lenience and not method.truncates and name != OWN_RULE
]
"""Methods that accept more with more lenience."""


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    found = recorded_scales()
    assert found is not None
    return found


def test_the_recorded_sweep_has_a_curve_of_every_method_that_lenience_speeds_up(
    recorded: dict[str, Any],
) -> None:
    assert list(recorded["scales"]) == LENIENT
    assert (recorded["pair"], recorded["items"]) == ("embedded", 200)
    for method, curves in recorded["scales"].items():
        for _, curve in curves:
            assert (curve[0][0], curve[-1][0]) == METHODS[method].offered_range
            assert all(one[0] < other[0] and one[1] <= other[1] for one, other in pairwise(curve))


@pytest.mark.parametrize("method", LENIENT)
@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0])
def test_a_scale_is_invertible_and_even_in_the_acceptance_rate(
    recorded: dict[str, Any], method: str, temperature: float
) -> None:
    """A tenth of the way is about a tenth of the whole change."""
    found = scale_at(recorded, method, temperature)
    accepted = [found.acceptance(found.lenience(step / 10)) for step in range(11)]
    for step in range(101):
        assert found.position(found.lenience(step / 100)) == pytest.approx(step / 100, abs=1e-9)
    whole = accepted[-1] - accepted[0]
    assert all(0 <= other - one <= 1.2 * whole / 10 + 1e-9 for one, other in pairwise(accepted))
