"""The statistics of a sweep, held against hand and brute force: figures, intervals, pairing, equal rejection, costs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from specviz.analysis.sweep import bootstrap, estimates
from specviz.analysis.sweep.cost_model import CostModel, fit_cost_model
from specviz.analysis.sweep.grid import Setting, SweepGrid
from specviz.analysis.sweep.results import COMPARED, FIGURES, Estimate, Point, Results
from specviz.analysis.sweep.sample import Sample, Timing
from specviz.core.methods import METHODS

VERIFIER, DRAFTER = Setting(1.0, "verifier_only", 0.0), Setting(1.0, "drafter_only", 0.0)
CASCADE = Setting(1.0, "cascade_tokenV3", 0.5)


def _sample(setting: int, item: int, **values: Any) -> Sample:
    usual: dict[str, Any] = {
        "trial": 0,
        "seed": 0,
        "text": "",
        "tokens": 10,
        "examined": 10,
        "accepted": 5,
        "drafted": 12,
        "verifier_calls": 4,
        "score": 1.0,
        "distance": 1.0,
        "log_probability": -10.0,
        "greedy": 5,
        "stop_reason": "eos",
    }
    return Sample(setting=setting, item=item, **usual | values)


def _timing(setting: int, index: int, **values: Any) -> Timing:
    usual = {"tokens": 10, "seconds": 1.0, "drafted": 0, "drafter_seconds": 0.0, "rounds": 10}
    return Timing(setting=setting, item=index, index=index, **usual | values)


def _results(
    settings: Sequence[Setting], samples: Sequence[Sample], items: int, timings: Sequence[Timing] = ()
) -> Results:
    points = estimates.estimate_points(settings, items, samples)
    found = Results({}, "drafter", "verifier", "float32", items, points)
    return estimates.with_latency(found, settings, timings) if timings else found


def _only(found: Results, setting: Setting) -> Point:
    point = found.point(setting.temperature, setting.method, setting.lenience)
    assert point is not None
    return point


def _exactly(value: float) -> Estimate:
    return Estimate(value, value, value)


def _noisy(settings: Sequence[Setting], items: int, trials: int = 1, seed: int = 0) -> list[Sample]:
    """Texts of all settings whose numbers are drawn anew for each."""
    draw = random.Random(seed)
    samples = []
    for number, setting in enumerate(settings):
        method = METHODS[setting.method]
        both = method.drafts and method.verifies
        for item, trial in product(range(items), range(trials)):
            tokens = draw.randint(2, 20)
            samples.append(
                _sample(
                    number,
                    item,
                    trial=trial,
                    tokens=tokens,
                    examined=tokens if both else 0,
                    accepted=draw.randint(0, tokens) if both else 0,
                    verifier_calls=draw.randint(1, tokens) if method.verifies else 0,
                    score=float(draw.random() < 0.5),
                    distance=draw.random() * tokens,
                    log_probability=-draw.random() * tokens,
                    greedy=draw.randint(0, tokens),
                )
            )
    return samples


def test_figures_are_ratios_of_sums() -> None:
    """A long text weighs more than a short one; accuracy is the items' mean of their trials' means."""
    samples = [
        _sample(
            0, 0, tokens=10, examined=12, accepted=6, verifier_calls=5, distance=1.0, log_probability=-4.0
        ),
        _sample(0, 0, trial=1, tokens=2, examined=2, accepted=2, verifier_calls=1, score=0.0, greedy=2),
        _sample(0, 1, tokens=30, examined=30, accepted=3, verifier_calls=29, score=0.0, greedy=1),
        _sample(0, 2, tokens=8, examined=8, accepted=8, verifier_calls=2, score=None, distance=0.0),
    ]
    point = _only(_results([CASCADE], samples, items=3), CASCADE)
    values = {name: one.value for name, one in point.figures.items()}
    assert (point.samples, point.tokens) == (4, 50)
    assert values == {
        "accuracy": 0.25,  # one of two trials, none of one; the third has no answer
        "log_probability": pytest.approx(-34 / 50),
        "distance": pytest.approx(3 / 50),
        "greedy_agreement": pytest.approx((5 + 2 + 1 + 5) / 50),
        "rejection_rate": pytest.approx(1 - 19 / 52),
        "verifier_calls": pytest.approx(37 / 50),
        "block_efficiency": pytest.approx(50 / 37, rel=1e-5),
    }


def test_interval_of_a_share_is_the_binomial_one() -> None:
    """Resampled items of which a share is right: replicates are binomial, and so are their quantiles."""
    items, right = 100, 30
    found = _results([CASCADE], [_sample(0, i, score=float(i < right)) for i in range(items)], items)
    accuracy = _only(found, CASCADE).figures["accuracy"]
    drawn = np.random.default_rng(5).binomial(items, right / items, 200_000) / items
    assert accuracy.value == 0.3
    assert [accuracy.low, accuracy.high] == pytest.approx(np.quantile(drawn, (0.025, 0.975)), abs=0.011)


def test_interval_of_a_ratio_against_every_resample() -> None:
    """Four items have 4^4 resamples; the interval of a ratio of sums is that of all of them, weighed alike."""
    tokens, calls = (2, 5, 9, 20), (2, 3, 3, 4)
    samples = [
        _sample(0, i, tokens=t, verifier_calls=c) for i, (t, c) in enumerate(zip(tokens, calls, strict=True))
    ]
    found = _only(_results([CASCADE], samples, 4), CASCADE).figures["block_efficiency"]
    every = sorted(
        sum(tokens[i] for i in chosen) / sum(calls[i] for i in chosen)
        for chosen in product(range(4), repeat=4)
    )
    assert found.value == 3.0
    assert found.low == pytest.approx(np.quantile(every, 0.025), abs=0.1)
    assert found.high == pytest.approx(np.quantile(every, 0.975), abs=0.1)


def test_trials_of_an_item_stay_together() -> None:
    """A hundred trials of each of ten items are no thousand items: the interval is as wide as with one trial."""
    once = [_sample(0, item, score=float(item < 5)) for item in range(10)]
    often = [replace(one, trial=trial) for one in once for trial in range(100)]
    narrow, wide = (
        _only(_results([CASCADE], some, 10), CASCADE).figures["accuracy"] for some in (often, once)
    )
    assert narrow == wide
    assert wide.high - wide.low > 0.4


def test_intervals_cover_what_they_should() -> None:
    """Of sweeps drawn from a known truth, about 95 % of the intervals hold it: of a ratio, and of a difference."""
    draw = np.random.default_rng(3)
    settings, sweeps, items = [VERIFIER, CASCADE], 150, 60
    ratio = difference = 0
    for _ in range(sweeps):
        ease = draw.random(items)  # of an item, for both settings
        samples = []
        for number, shift in ((0, 0.3), (1, 0.1)):
            tokens = draw.integers(2, 20, items)
            scores = draw.random(items) < 0.6 * ease + shift
            samples += [
                _sample(
                    number, i, tokens=int(n), score=float(s), log_probability=float(-n * draw.exponential())
                )
                for i, (n, s) in enumerate(zip(tokens, scores, strict=True))
            ]
        point = _only(_results(settings, samples, items), CASCADE)
        own, gap = point.figures["log_probability"], point.against_verifier["accuracy"]
        ratio += own.low <= -1 <= own.high
        difference += gap.low <= -0.2 <= gap.high
    assert 0.87 <= ratio / sweeps <= 1
    assert 0.87 <= difference / sweeps <= 1


def test_differences_are_paired() -> None:
    """The same texts differ by exactly nothing, however uncertain each is; a constant gap has no width either."""
    items, settings = 40, [VERIFIER, Setting(1.0, "speed", 0.0), CASCADE]
    samples = []
    for one in _noisy([VERIFIER], items):
        both = {"examined": one.tokens, "accepted": 0}
        samples += [one, replace(one, setting=1, **both)]
        samples.append(
            replace(one, setting=2, log_probability=one.log_probability - 0.5 * one.tokens, **both)
        )
    found = _results(settings, samples, items)
    accuracy = _only(found, VERIFIER).figures["accuracy"]
    assert accuracy.high - accuracy.low > 0.2
    assert _only(found, settings[1]).against_verifier == dict.fromkeys(COMPARED, _exactly(0.0))
    assert _only(found, CASCADE).against_verifier["log_probability"] == _exactly(-0.5)
    assert _only(found, VERIFIER).against_verifier == {}


def test_models_alone_by_definition() -> None:
    """The drafter alone rejects nothing and calls nobody, the verifier alone rejects all: no chance in it."""
    settings = [DRAFTER, VERIFIER]
    samples = []
    for item in range(5):
        alone = {"examined": 0, "accepted": 0, "tokens": item + 3}
        samples.append(_sample(0, item, verifier_calls=0, **alone))
        samples.append(_sample(1, item, drafted=0, verifier_calls=item + 3, **alone))
    found = _results(settings, samples, 5)
    drafter, verifier = (_only(found, one).figures for one in settings)
    assert (drafter["rejection_rate"], drafter["verifier_calls"]) == (_exactly(0.0), _exactly(0.0))
    assert (verifier["rejection_rate"], verifier["verifier_calls"]) == (_exactly(1.0), _exactly(1.0))
    assert verifier["block_efficiency"] == _exactly(1.0)
    assert "block_efficiency" not in drafter
    assert {"rejection_rate", "verifier_calls", "accuracy"} <= set(FIGURES)
    assert all(point.beats_both == "no" and not point.against_speed for point in found.points)


def test_equal_rejection_by_hand() -> None:
    """A cascade is held against the straight line between speed's neighbours; beyond its ends against nothing."""
    rates = {
        Setting(1.0, "speed", 0.0): 0.8,
        Setting(1.0, "speed", 0.5): 0.4,
        Setting(1.0, "speed", 1.0): 0.2,
    }
    scores = dict(zip(rates, (-1.0, -3.0, -7.0), strict=True))
    for name, rate, score in (
        ("opt", 0.5, -1.0),
        ("diff", 0.25, -8.0),
        ("chow", 0.9, -1.0),
        ("tokenV1", 0.1, -1.0),
    ):
        rates[setting := Setting(1.0, f"cascade_{name}", 0.5)] = rate
        scores[setting] = score
    settings = list(rates)
    samples = [
        _sample(
            number,
            item,
            tokens=100,
            examined=100,
            accepted=round(100 * (1 - rates[one])),
            log_probability=100 * scores[one],
        )
        for number, one in enumerate(settings)
        for item in range(6)
    ]
    found = _results(settings, samples, 6)
    held = {point.setting.method: point.against_speed.get("log_probability") for point in found.points[3:]}
    assert held["cascade_opt"] == _exactly(pytest.approx(-1.0 - -2.5))
    assert held["cascade_diff"] == _exactly(pytest.approx(-8.0 - -6.0))
    assert held["cascade_chow"] is held["cascade_tokenV1"] is None
    assert all(not point.against_speed for point in found.points[:3])


def test_equal_rejection_in_every_replicate() -> None:
    """Curve and point move together, near an end too: the interval is that of a plain loop over the same resamples."""
    settings = [Setting(1.0, "speed", a) for a in (0.0, 0.3, 0.6, 1.0)] + [CASCADE]
    items = 25
    draw = random.Random(1)
    samples = [
        _sample(
            s,
            i,
            examined=40,
            accepted=min(40, 8 * s + draw.randint(0, 12)) if s < 4 else draw.randint(0, 13),
            score=draw.random(),
        )
        for s in range(5)
        for i in range(items)
    ]
    found = _only(_results(settings, samples, items), CASCADE).against_speed["accuracy"]
    rejected, score = np.zeros((5, items)), np.zeros((5, items))
    for one in samples:
        rejected[one.setting, one.item] = 1 - one.accepted / one.examined
        score[one.setting, one.item] = one.score or 0.0
    gaps = []
    for weights in np.random.RandomState(bootstrap.SEED).multinomial(
        items, [1 / items] * items, bootstrap.REPLICATES
    ):
        rate, value = rejected @ weights / items, score @ weights / items
        curve = sorted(zip(rate[:4], value[:4], strict=True))
        gaps.append(value[4] - np.interp(rate[4], *zip(*curve, strict=True)))
    low, high = np.quantile(gaps, (0.025, 0.975))
    assert [found.low, found.high] == pytest.approx([low, high], rel=1e-5)
    assert found.low < found.value < found.high


def test_no_curve_nothing_to_hold_against() -> None:
    """At temperature 0 lenience changes nothing for speed, and one lenience is no curve: no comparison."""
    for temperature, leniences in ((0.0, (0.0, 0.5, 1.0)), (1.0, (0.0,))):
        settings = [Setting(temperature, "speed", a) for a in leniences]
        settings.append(Setting(temperature, "cascade_chow", 0.5))
        samples = [
            _sample(number, item, accepted=5 + number) for number in range(len(settings)) for item in range(4)
        ]
        samples += [_sample(len(settings) - 1, item, trial=1, accepted=5) for item in range(4)]
        assert all(not point.against_speed for point in _results(settings, samples, 4).points)


@pytest.mark.parametrize(
    ("right", "verdict"),
    [(range(35), "surely"), (range(21), "yes"), (range(20), "no"), (range(10, 15), "no")],
)
def test_beats_both(right: range, verdict: str) -> None:
    """Ahead of the better model or not, and surely only where the interval of the difference says so."""
    settings, items = [DRAFTER, VERIFIER, CASCADE], 40
    correct = (range(20, 30), range(20), right)
    samples = [_sample(s, i, score=float(i in correct[s])) for s in range(3) for i in range(items)]
    # The one item more than the verifier's is one of forty: its interval reaches down to 0.
    found = _results(settings, samples, items)
    assert [point.beats_both for point in found.points] == ["no", "no", verdict]


def test_the_better_model_is_chosen_in_every_replicate() -> None:
    """Of two equally good models one is ahead by chance in every resample: to surely beat both is to beat that one."""
    settings, items = [DRAFTER, VERIFIER, CASCADE], 60
    correct = range(20), range(20, 40), [*range(7), *range(20, 27), *range(40, 59)]
    samples = [_sample(s, i, score=float(i in correct[s])) for s in range(3) for i in range(items)]
    assert _only(_results(settings, samples, items), CASCADE).beats_both == "yes"
    twice = [replace(one, setting=0) for one in samples if one.setting == 1]
    twice += [one for one in samples if one.setting]
    assert _only(_results(settings, twice, items), CASCADE).beats_both == "surely"


def test_half_a_sweep() -> None:
    """Settings without texts are left out; differences are taken over the items that both have."""
    settings = [DRAFTER, VERIFIER, CASCADE]
    samples = [_sample(1, item, score=float(item < 2)) for item in range(8)]
    samples += [_sample(2, item, score=float(item < 3)) for item in range(4)]
    found = _results(settings, samples, 8)
    assert [point.setting for point in found.points] == [VERIFIER, CASCADE]
    assert _only(found, VERIFIER).figures["accuracy"].value == 0.25
    assert _only(found, CASCADE).against_verifier["accuracy"].value == 0.25
    assert _only(found, CASCADE).beats_both == "no"
    more = [_sample(1, item, score=0.0) for item in range(2)] + samples[8:]
    assert _only(_results(settings, more, 8), CASCADE).against_verifier["accuracy"] == _exactly(1.0)
    assert _results(settings, [], 8).points == ()
    assert _results(settings, [], 0).points == ()


def test_one_item_has_no_width() -> None:
    """With a single item, replicates without it are left out and the others are all the same."""
    found = _only(_results([CASCADE], [_sample(0, 7, score=1.0)], 30), CASCADE)
    assert found.figures["accuracy"] == _exactly(1.0)


def test_order_does_not_matter() -> None:
    """The same samples and timings in any order give the same file, to the last letter; so does reading it back."""
    settings = SweepGrid(temperatures=(0.0, 1.0)).settings
    samples = _noisy(settings, items=12, trials=2)
    draw = random.Random(2)
    timings = [_timing(s, p, seconds=draw.random()) for s in range(len(settings)) for p in range(3)]
    found = _results(settings, samples, 12, timings)
    text = found.to_json()
    for _ in range(2):
        draw.shuffle(samples)
        draw.shuffle(timings)
        assert _results(settings, samples, 12, timings).to_json() == text
    assert Results.from_json(text) == found
    assert [point.setting for point in found.points] == settings
    assert all(one.low <= one.value <= one.high for point in found.points for one in point.figures.values())


def test_numbers_are_rounded() -> None:
    """Six significant digits: what is beyond them depends on the processor."""
    samples = [_sample(0, item, distance=1 / 3, tokens=7) for item in range(3)]
    assert _only(_results([CASCADE], samples, 3), CASCADE).figures["distance"] == _exactly(0.047619)


def test_relative_latency() -> None:
    """Seconds a token ÷ verifier_only's of the same temperature, over the places at which both were timed."""
    cold = Setting(0.0, "verifier_only", 0.0)
    settings = [cold, VERIFIER, CASCADE]
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
    # Four places drawn of which two count: only the first, only the second, or both; the ends are the pure ones.
    assert [latency.low, latency.high] == pytest.approx([(2 / 30) / (4 / 20), 2.0], rel=1e-5)
    assert _only(found, VERIFIER).figures["relative_latency"] == _exactly(1.0)
    untimed = _results(settings, samples, 1)
    assert all("relative_latency" not in point.figures for point in untimed.points)
    assert estimates.with_latency(untimed, settings, timings) == found
    assert estimates.with_latency(found, settings, []) == untimed
    alone = _results([CASCADE], samples[:1], 1, timings[:1])
    assert "relative_latency" not in alone.points[0].figures


def test_cost_model_by_hand() -> None:
    """c from the time a proposal, s from the rest of a round at the proposals it had; medians, so a hiccup is nothing."""
    settings = [VERIFIER, DRAFTER, CASCADE]
    timings = []
    for number, speed in enumerate((1.0, 3.0, 0.5)):  # the machine is not always as fast
        timings.append(_timing(0, number, seconds=10 * speed, tokens=10))
        timings.append(
            _timing(1, number, seconds=2 * speed, tokens=10, drafted=10, drafter_seconds=2 * speed)
        )
        # 4 rounds of 3 proposals, 0.2 each, and verifications of 1 + 0.1·2.
        rounds = {"drafted": 12, "rounds": 4, "drafter_seconds": 12 * 0.2 * speed}
        hiccup = 100.0 if number == 2 else 0.0
        timings.append(_timing(2, number, seconds=(12 * 0.2 + 4 * 1.2) * speed + hiccup, tokens=9, **rounds))
    assert fit_cost_model(settings, timings, 3) == CostModel(drafter=0.2, per_token=0.1, draft_length=3)
    assert fit_cost_model(settings, [one for one in timings if one.setting != 2], 3) is None
    assert fit_cost_model(settings, [one for one in timings if one.setting != 0], 3) is None


def test_cost_model_of_single_proposals_and_of_cheap_verifications() -> None:
    """With one proposal a round nothing is known of more; a verification never gets cheaper by the token."""
    for rounds, draft_length in ((12, 1), (4, 3)):
        timings = [
            _timing(0, 0, seconds=10.0),
            _timing(1, 0, seconds=rounds * 0.5, drafted=12, rounds=rounds, drafter_seconds=rounds * 0.1),
        ]
        costs = fit_cost_model([VERIFIER, CASCADE], timings, draft_length)
        assert costs == CostModel(pytest.approx(rounds * 0.1 / 12, rel=1e-5), 0.0, draft_length)
