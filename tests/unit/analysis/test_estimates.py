"""The statistics of a sweep, against hand and brute force: figures, intervals, pairing, equal rejection."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

from specviz.analysis.sweep.estimates import REPLICATES, SEED, estimate_points, with_latency
from specviz.analysis.sweep.grid import Setting, SweepGrid
from specviz.analysis.sweep.results import COMPARED, Estimate, Point, Results, Sample, Timing

VERIFIER, DRAFTER = Setting(1.0, "verifier_only", 0.0), Setting(1.0, "drafter_only", 0.0)
LOSSLESS, CASCADE = Setting(1.0, "speed", 0.0), Setting(1.0, "cascade_tokenV3", 0.5)


def _sample(setting: int, item: int, **values: Any) -> Sample:
    usual: dict[str, Any] = {
        **{"trial": 0, "seed": 0, "text": "", "tokens": 10, "examined": 10, "accepted": 5, "drafted": 12},
        **{"verifier_calls": 4, "score": 1.0, "distance": 1.0, "log_probability": -10.0, "greedy": 5},
        "stop_reason": "eos",
    }
    return Sample(setting=setting, item=item, **usual | values)


def _timing(setting: int, timed: int, **values: Any) -> Timing:
    usual = {"tokens": 10, "seconds": 1.0, "drafted": 0, "drafter_seconds": 0.0, "rounds": 10}
    return Timing(setting=setting, item=timed, timed=timed, **usual | values)


def _results(
    settings: Sequence[Setting], samples: Sequence[Sample], items: int, timings: Sequence[Timing] = ()
) -> Results:
    points = estimate_points(settings, items, samples)
    found = Results(SweepGrid(), "drafter", "verifier", "float32", (), points)
    return with_latency(found, settings, timings) if timings else found


def _only(found: Results, setting: Setting) -> Point:
    point = found.point(setting.temperature, setting.method, setting.lenience)
    assert point is not None
    return point


def _exactly(value: float) -> Estimate:
    return Estimate(value, value, value)


def test_figures_are_ratios_of_sums() -> None:
    """A long text weighs more than a short one; accuracy is the items' mean of their trials' means."""
    long = {"tokens": 10, "examined": 12, "accepted": 6, "verifier_calls": 5, "log_probability": -4.0}
    samples = [
        _sample(0, 0, **long),
        _sample(0, 0, trial=1, tokens=2, examined=2, accepted=2, verifier_calls=1, score=0.0, greedy=2),
        _sample(0, 1, tokens=30, examined=30, accepted=3, verifier_calls=29, score=0.0, greedy=1),
        _sample(0, 2, tokens=8, examined=8, accepted=8, verifier_calls=2, score=None, distance=0.0),
    ]
    point = _only(_results([CASCADE], samples, items=3), CASCADE)
    assert (point.samples, point.tokens) == (4, 50)
    assert {name: one.value for name, one in point.figures.items()} == {
        "accuracy": 0.25,  # one of two trials, none of one; the third has no answer
        "log_probability": pytest.approx(-34 / 50),
        "distance": pytest.approx(3 / 50),
        "greedy_agreement": pytest.approx((5 + 2 + 1 + 5) / 50),
        "rejection_rate": pytest.approx(1 - 19 / 52),
        "verifier_calls": pytest.approx(37 / 50),
    }


def test_trials_of_an_item_stay_together() -> None:
    """A hundred trials of each of ten items are no thousand items: the interval is as wide as with one trial."""
    once = [_sample(0, item, score=float(item < 5)) for item in range(10)]
    often = [one._replace(trial=trial) for one in once for trial in range(100)]
    narrow, wide = (
        _only(_results([CASCADE], some, 10), CASCADE).figures["accuracy"] for some in (often, once)
    )
    assert narrow == wide
    assert wide.high - wide.low > 0.4


def test_differences_are_paired() -> None:
    """The same texts differ by exactly nothing, however uncertain each is; a constant gap has no width either."""
    draw = random.Random(0)
    samples = []
    for item in range(40):
        one = _sample(0, item, tokens=draw.randint(2, 20), score=float(draw.random() < 0.5), examined=0)
        lossless = one._replace(setting=1, examined=one.tokens, accepted=0)
        other = lossless._replace(setting=2, log_probability=one.log_probability - 0.5 * one.tokens)
        samples += [one, lossless, other]
    found = _results([VERIFIER, LOSSLESS, CASCADE], samples, 40)
    accuracy = _only(found, VERIFIER).figures["accuracy"]
    assert accuracy.high - accuracy.low > 0.2
    assert _only(found, LOSSLESS).against_verifier == dict.fromkeys(COMPARED, _exactly(0.0))
    assert _only(found, CASCADE).against_verifier["log_probability"] == _exactly(-0.5)
    assert _only(found, CASCADE).ratios == dict.fromkeys(("accuracy", "rejection_rate"), _exactly(1.0))
    assert _only(found, VERIFIER).against_verifier == {}


def test_models_alone_by_definition() -> None:
    """The drafter alone rejects nothing and calls no verifier, the verifier alone rejects all."""
    alone: dict[str, Any] = {"examined": 0, "accepted": 0}
    samples = [_sample(0, item, verifier_calls=0, **alone) for item in range(5)]
    samples += [_sample(1, item, drafted=0, verifier_calls=10, **alone) for item in range(5)]
    found = _results([DRAFTER, VERIFIER], samples, 5)
    for setting, value in ((DRAFTER, 0.0), (VERIFIER, 1.0)):
        figures = _only(found, setting).figures
        assert (figures["rejection_rate"], figures["verifier_calls"]) == (_exactly(value), _exactly(value))


@pytest.mark.parametrize(
    ("baseline", "curve", "rivals"),
    [
        (
            "lossless_min_p",  # the most accurate that rejects no more; of all, if all reject more and one is worse
            [(0, 0.3, 0.6), (0.5, 0.2, 0.4), (1, 0.5, 0.2)],
            [(0.6, 0.5, 0.6), (0.25, 0.5, 0.4), (0.1, 0.5, None), (0.1, 0.8, 0.6)],
        ),
        (
            "speed",  # on the straight line between its neighbouring points; beyond its ends with nothing
            [(0, 0.8, 0.9), (0.5, 0.4, 0.7), (1, 0.2, 0.3)],
            [(0.5, 0.9, 0.75), (0.25, 0.2, 0.4), (0.9, 0.9, None), (0.1, 0.9, None)],
        ),
    ],
)
def test_a_cascade_is_compared_with_a_fair_point_of_a_baseline(
    baseline: str, curve: list[tuple], rivals: list[tuple]
) -> None:
    """Each has a rejection rate and an accuracy, and a rival the accuracy that it is compared with."""
    cascades = ("cascade_opt", "cascade_diff", "cascade_chow", "cascade_tokenV1")
    given = [(baseline, *point) for point in curve]
    given += [(name, 0.5, *rival[:2]) for name, rival in zip(cascades, rivals, strict=True)]
    settings = [Setting(1.0, method, lenience) for method, lenience, _, _ in given]
    samples = [
        _sample(s, i, examined=100, accepted=round(100 - 100 * rate), score=score)
        for s, (_, _, rate, score) in enumerate(given)
        for i in range(6)
    ]
    side = {"speed": "against_speed", "lossless_min_p": "against_min_p"}[baseline]
    points = _results(settings, samples, 6).points
    found = [getattr(point, side).get("accuracy") for point in points]
    wanted = [other if other is None else _exactly(pytest.approx(own - other)) for _, own, other in rivals]
    assert found == [None] * len(curve) + wanted


def test_equal_rejection_in_every_replicate() -> None:
    """Curve and point move together, near an end too: the interval is that of a plain loop over the same resamples."""
    settings = [Setting(1.0, "speed", a) for a in (0.0, 0.3, 0.6, 1.0)] + [CASCADE]
    items, draw = 25, random.Random(1)
    rejected, score = np.zeros((5, items)), np.zeros((5, items))
    samples = []
    for s, i in product(range(5), range(items)):
        accepted = min(40, 8 * s + draw.randint(0, 12)) if s < 4 else draw.randint(0, 13)
        score[s, i], rejected[s, i] = draw.random(), 1 - accepted / 40
        samples.append(_sample(s, i, examined=40, accepted=accepted, score=float(score[s, i])))
    found = _only(_results(settings, samples, items), CASCADE).against_speed["accuracy"]
    gaps = []
    for weights in np.random.RandomState(SEED).multinomial(items, [1 / items] * items, REPLICATES):
        rate, value = rejected @ weights / items, score @ weights / items
        curve = sorted(zip(rate[:4], value[:4], strict=True))
        gaps.append(value[4] - np.interp(rate[4], *zip(*curve, strict=True)))
    assert [found.low, found.high] == pytest.approx(np.quantile(gaps, (0.025, 0.975)), rel=1e-5)
    assert found.low < found.value < found.high


def test_without_a_curve_there_is_no_comparison() -> None:
    """At temperature 0 lenience changes nothing for speed, and one lenience is no curve."""
    for temperature, leniences in ((0.0, (0.0, 0.5, 1.0)), (1.0, (0.0,))):
        settings = [Setting(temperature, "speed", a) for a in leniences]
        settings.append(Setting(temperature, "cascade_chow", 0.5))
        samples = [_sample(number, item) for number in range(len(settings)) for item in range(4)]
        assert all(not point.against_speed for point in _results(settings, samples, 4).points)


@pytest.mark.parametrize(
    ("right", "verdict"),
    [(range(35), "surely"), (range(21), "yes"), (range(20), "no"), (range(10, 15), "no")],
)
def test_beats_both(right: range, verdict: str) -> None:
    """Ahead of the better model or not; surely only where the interval of the difference lies above 0."""
    correct = (range(20, 30), range(20), right)
    samples = [_sample(s, i, score=float(i in correct[s])) for s in range(3) for i in range(40)]
    found = _results([DRAFTER, VERIFIER, CASCADE], samples, 40)
    assert [point.beats_both for point in found.points] == ["no", "no", verdict]


def test_the_better_model_is_chosen_in_every_replicate() -> None:
    """Of two equally good models one is ahead by chance in every resample: to surely beat both is to beat that one."""
    settings, items = [DRAFTER, VERIFIER, CASCADE], 60
    correct = range(20), range(20, 40), [*range(7), *range(20, 27), *range(40, 59)]
    samples = [_sample(s, i, score=float(i in correct[s])) for s in range(3) for i in range(items)]
    assert _only(_results(settings, samples, items), CASCADE).beats_both == "yes"
    twice = [one._replace(setting=0) for one in samples if one.setting == 1]
    twice += [one for one in samples if one.setting]
    assert _only(_results(settings, twice, items), CASCADE).beats_both == "surely"


def test_settings_without_texts_are_left_out_and_one_item_has_no_interval() -> None:
    settings = [DRAFTER, VERIFIER, CASCADE]
    found = _results(settings, [_sample(s, 7, score=1.0) for s in (1, 2)], 30)
    assert [point.setting for point in found.points] == [VERIFIER, CASCADE]
    assert _only(found, CASCADE).figures["accuracy"] == _exactly(1.0)
    assert _results(settings, [], 8).points == _results(settings, [], 0).points == ()


def test_relative_latency() -> None:
    """Seconds a token ÷ verifier_only's at the same temperature, over the items that both were timed on."""
    settings = [Setting(0.0, "verifier_only", 0.0), VERIFIER, CASCADE]
    samples = [_sample(number, 0) for number in range(3)]
    timings = [
        _timing(0, 0, seconds=99.0),
        _timing(1, 0, seconds=1.0, tokens=10),
        _timing(1, 1, seconds=4.0, tokens=20),
        _timing(1, 2, seconds=50.0, tokens=1),
        _timing(2, 0, seconds=2.0, tokens=10),
        _timing(2, 1, seconds=2.0, tokens=30),
        _timing(2, 3, seconds=70.0, tokens=1),
    ]
    found = _results(settings, samples, 1, timings)
    latency = _only(found, CASCADE).figures["relative_latency"]
    assert latency.value == pytest.approx((4 / 40) / (5 / 30))
    # Of the items drawn two count: only the first, only the second, or both; the ends are the pure ones.
    assert [latency.low, latency.high] == pytest.approx([(2 / 30) / (4 / 20), 2.0], rel=1e-5)
    assert _only(found, VERIFIER).figures["relative_latency"] == _exactly(1.0)
