"""The curves behind the lenience's scale, and the scale that follows: one way, invertible, even in the acceptance rate."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from specviz.analysis.sweep import scale
from specviz.analysis.sweep.folder import SHELF, SweepFolder
from specviz.analysis.sweep.results import Results
from specviz.analysis.sweep.scale import Scales, make_scales, recorded_scales
from specviz.core.methods import METHODS, OWN_RULE
from tests.support.scales import make_scale, scale_at

LENIENT = [
    name
    for name, method in METHODS.items()
    if method.has_lenience and not method.truncates and name != OWN_RULE
]
"""Methods that accept more with more lenience."""


@pytest.fixture(scope="module")
def recorded() -> Scales:
    found = recorded_scales()
    assert found is not None
    return found


@pytest.fixture(scope="module")
def results() -> Results:
    return SweepFolder(SHELF).results()


def test_the_recorded_sweep_has_a_curve_of_every_method_that_lenience_speeds_up(recorded: Scales) -> None:
    assert list(recorded.curves) == LENIENT
    assert (recorded.pair, recorded.items, recorded.quality) == ("embedded", 200, "accuracy")
    for method, curves in recorded.curves.items():
        for curve in curves.values():
            assert (curve[0][0], curve[-1][0]) == METHODS[method].offered_range
            assert all(one[0] < other[0] and one[1] <= other[1] for one, other in pairwise(curve))


@pytest.mark.parametrize("method", LENIENT)
@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0])
def test_a_scale_is_invertible_and_even_in_the_acceptance_rate(
    recorded: Scales, method: str, temperature: float
) -> None:
    """A tenth of the way is about a tenth of the whole change."""
    found = scale_at(recorded, method, temperature)
    accepted = [found.acceptance(found.lenience(step / 10)) for step in range(11)]
    for step in range(101):
        assert found.position(found.lenience(step / 100)) == pytest.approx(step / 100, abs=1e-9)
    whole = accepted[-1] - accepted[0]
    assert all(0 <= other - one <= 1.2 * whole / 10 + 1e-9 for one, other in pairwise(accepted))


def test_a_flat_curve_has_an_even_scale(recorded: Scales) -> None:
    assert scale_at(recorded, "speed", 0.0).position(0.25) == pytest.approx(0.25)
    assert make_scale([(0, 0.4, 1.0), (0.5, 0.4, 0.5), (1, 0.8, 0.0)]).position(0.5) == pytest.approx(0.04)


def test_without_accuracy_the_likelihood_is_the_quality(results: Results) -> None:
    points = [
        replace(each, figures={name: one for name, one in each.figures.items() if name != "accuracy"})
        for each in results.points
    ]
    found = make_scales(replace(results, points=tuple(points)))
    assert found is not None
    assert found.quality == "log_probability"
    assert found.verifier[0.0] == pytest.approx(-0.662, abs=1e-3)


def test_a_method_that_lacks_an_end_has_no_curve(results: Results) -> None:
    less = [each for each in results.points if each.setting.title != "Speculative decoding, α\u00a0=\u00a01"]
    found = make_scales(replace(results, points=tuple(less)))
    assert found is not None
    assert list(found.curves) == LENIENT[1:]
    assert make_scales(replace(results, points=())) is None


def test_without_a_recorded_sweep_there_are_no_curves(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(scale, "SHELF", tmp_path)
    assert recorded_scales.__wrapped__() is None
