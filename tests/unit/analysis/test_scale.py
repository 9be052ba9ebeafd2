"""The scale of the lenience: one way, exactly invertible, and even in the acceptance rate as far as the sweep knows it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from specviz.analysis.sweep import scale
from specviz.analysis.sweep.folder import SHELF, SweepFolder
from specviz.analysis.sweep.results import Estimate, Results
from specviz.analysis.sweep.scale import EVEN, Scale, Scales, make_scale, make_scales, recorded_scales
from specviz.core.methods import METHODS, OWN_RULE

STEPS = 200
TEMPERATURES = (0.0, 0.1, 0.3, 0.5, 0.7, 1.0)
LENIENT = [name for name, method in METHODS.items() if method.has_lenience and name != OWN_RULE]


@pytest.fixture(scope="module")
def recorded() -> Scales:
    found = recorded_scales()
    assert found is not None
    return found


def at(scales: Scales, method: str, temperature: float) -> Scale:
    found = scales.at(method, temperature)
    assert found is not None
    return found


def test_every_method_with_a_lenience_has_a_scale_on_the_pair_of_the_recorded_sweep(recorded: Scales) -> None:
    assert list(recorded.scales) == LENIENT
    assert (recorded.pair, recorded.items, recorded.quality) == ("embedded", 200, "accuracy")
    assert recorded.at("verifier_only", 0.5) is None


@pytest.mark.parametrize("method", LENIENT)
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_a_scale_goes_one_way_and_back_exactly(recorded: Scales, method: str, temperature: float) -> None:
    found = at(recorded, method, temperature)
    low, high = METHODS[method].offered_range
    assert (found.position(low), found.position(high)) == (0, 1)
    leniences = [found.lenience(step / STEPS) for step in range(STEPS + 1)]
    assert all(one < next_one for one, next_one in pairwise(leniences))
    for step, lenience in enumerate(leniences):
        assert found.position(lenience) == pytest.approx(step / STEPS, abs=1e-9)
    for step in range(STEPS + 1):
        lenience = low + (high - low) * step / STEPS
        assert found.lenience(found.position(lenience)) == pytest.approx(lenience, abs=1e-9)


@pytest.mark.parametrize("method", LENIENT)
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_equal_ways_change_the_acceptance_rate_about_equally(
    recorded: Scales, method: str, temperature: float
) -> None:
    """A tenth of the way is about a tenth of the whole change, and never more than a fifth beyond that."""
    found = at(recorded, method, temperature)
    kept = [found.acceptance(found.lenience(step / 10)) for step in range(11)]
    whole = kept[-1] - kept[0]
    if method == "speed" and temperature == 0:
        assert whole == 0
        assert found.position(0.25) == pytest.approx(0.25)  # a flat curve: an even scale
        return
    for one, next_one in pairwise(kept):
        assert 0 <= next_one - one <= 1.2 * whole / 10


def test_between_two_temperatures_a_scale_lies_between_theirs(recorded: Scales) -> None:
    low, high = (recorded.scales["speed"][heat] for heat in (0.5, 1.0))
    between = at(recorded, "speed", 0.7)
    for first, found, last in zip(low.knots, between.knots, high.knots, strict=True):
        assert found.lenience == first.lenience == last.lenience
        for name in ("acceptance", "quality"):
            mixed = 0.6 * getattr(first, name) + 0.4 * getattr(last, name)
            assert getattr(found, name) == pytest.approx(mixed)
    for measured, found in zip(high.knots, at(recorded, "speed", 1.0).knots, strict=True):
        assert found.position == pytest.approx(measured.position)
    assert recorded.at("speed", 1.01) is recorded.at("speed", -0.1) is None


def test_what_chance_lets_fall_is_held_and_what_is_outside_is_the_end() -> None:
    found = make_scale([(0, 0.4, 1.0), (0.5, 0.39, 0.5), (1, 0.8, 0.0)])
    assert [knot.acceptance for knot in found.knots] == [0.4, 0.4, 0.8]
    assert found.position(0.5) == pytest.approx(EVEN / 2)
    assert (found.position(-3), found.position(7), found.lenience(-1), found.lenience(2)) == (0, 1, 0, 1)


def recorded_results() -> Results:
    return SweepFolder(SHELF).results()


def test_the_first_quality_that_all_points_have_is_taken() -> None:
    results = recorded_results()
    without = tuple(
        replace(each, figures={name: one for name, one in each.figures.items() if name != "accuracy"})
        for each in results.points
    )
    found = make_scales(replace(results, points=without))
    assert found is not None
    assert found.quality == "log_probability"
    assert found.verifier[0.0] == pytest.approx(-0.662, abs=1e-3)


def test_a_method_that_was_not_measured_from_end_to_end_has_no_scale() -> None:
    results = recorded_results()
    less = tuple(
        each for each in results.points if (each.setting.method, each.setting.lenience) != ("speed", 1.0)
    )
    found = make_scales(replace(results, points=less))
    assert found is not None
    assert list(found.scales) == LENIENT[1:]
    assert make_scales(replace(results, points=())) is None
    odd = tuple(replace(each, figures={"tokens": Estimate(1, 1, 1)}) for each in results.points)
    assert make_scales(replace(results, points=odd)) is None


def test_a_copy_without_a_recorded_sweep_has_no_scales(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(scale, "SHELF", tmp_path)
    assert recorded_scales.__wrapped__() is None
