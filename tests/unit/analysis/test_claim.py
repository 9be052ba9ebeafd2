"""What a sweep claims follows from its texts by rule, on sweeps made for each case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from specviz.analysis.sweep.claim import (
    FEWEST_ITEMS,
    Claim,
    best_settings,
    claim,
    of_hundred,
    opening_temperature,
    reading,
)
from specviz.analysis.sweep.estimates import estimate_points
from specviz.analysis.sweep.grid import Setting, SweepGrid
from specviz.analysis.sweep.items import Item
from specviz.analysis.sweep.results import Results, Sample
from specviz.core.methods import METHODS

ITEMS = 200
ALONE = {"verifier_only": (range(0, 120), 0.0), "drafter_only": (range(0, 20), 0.0)}
LOSSLESS = {"speed": (range(0, 120), 0.6)}
V3 = ("cascade_tokenV3", 0.6)


def sweep(
    made: Mapping[str | tuple[str, float], tuple[Any, float]], items: int = ITEMS, **more: Any
) -> Results:
    """A sweep whose settings answer these items right and reject about that share of drafts.

    A name alone is the setting at lenience 0.
    """
    settings = [Setting(1.0, *((key, 0.0) if isinstance(key, str) else key)) for key in made]
    chance = np.random.RandomState(0)
    samples = []
    for number, (right, rate) in enumerate(made.values()):
        method = METHODS[settings[number].method]
        examined = 20 if method.drafts and method.verifies else 0
        for item in range(items):
            rejected = chance.binomial(examined, rate)
            score = float(item in right)
            numbers = (10, examined, examined - rejected, examined, 5, score, 1.0, -10.0, 5, "eos")
            samples.append(Sample(number, item, 0, 0, "", *numbers))
    asked = tuple(Item(str(number), "fact", "?") for number in range(items))
    points = estimate_points(settings, items, samples)
    return Results(SweepGrid(), "drafter", "verifier", "float32", asked, points, **more)


def said(found: Claim) -> str:
    return f"{found.headline} {found.doubt}".replace("\u00a0", " ")


def test_a_setting_that_keeps_the_verifiers_answers_and_rejects_less_is_the_sentence() -> None:
    """It says whether the difference in answers may be chance. docs/results.md has a whole sentence."""
    loser = ("cascade_chow", 0.4)
    results = sweep({**ALONE, **LOSSLESS, V3: (range(0, 115), 0.3), loser: (range(0, 118), 0.5)})
    found = claim(results, 1.0)
    assert found.shown == results.point(1.0, *V3)
    assert found.curves == ("cascade_tokenV3", "speed", "cascade_chow")
    assert list(best_settings(results, 1.0)) == ["cascade_tokenV3", "cascade_chow", "speed"]
    assert "hardly chance" in said(found)
    alike = claim(sweep({**ALONE, **LOSSLESS, V3: (range(10, 126), 0.3)}), 1.0)
    assert "may be chance" in said(alike)


def test_a_setting_is_read_by_its_rejections_and_answers_beside_lossless_decoding_and_the_verifier() -> None:
    same, more = ("cascade_chow", 0.4), ("cascade_diff", 0.2)
    results = sweep(
        {**ALONE, "speed": (range(0, 120), 1.0), same: (range(0, 120), 1.0), more: (range(0, 130), 0.3)}
    )
    read = {point.setting.method: reading(results, point) for point in results.at(1.0)}
    for method, words in (
        ("speed", "is lossless"),
        ("cascade_chow", "as lossless decoding does"),
        ("cascade_diff", "65 of 100 questions right, more than the verifier’s 60"),
    ):
        assert words in read[method]


def test_without_a_sure_saving_the_sentence_is_about_lossless_decoding() -> None:
    made = sweep({**ALONE, **LOSSLESS, ("cascade_tokenV3", 0.3): (range(0, 120), 0.585)})
    *others, point = made.points
    wide = replace(point.ratios["rejection_rate"], high=1.02)
    unsure = replace(made, points=(*others, replace(point, ratios={**point.ratios, "rejection_rate": wide})))
    worse = sweep({**ALONE, **LOSSLESS, ("cascade_tokenV3", 0.9): (range(0, 60), 0.2)})
    for results, word in ((unsure, "surely"), (worse, "No method rejects")):
        found = claim(results, 1.0)
        assert word in found.headline
        assert (found.shown, found.is_named) == (results.point(1.0, "speed"), False)


def test_a_cascade_that_surely_beats_both_models_is_the_sentence() -> None:
    """The most accurate one, whatever rejects least; docs/specialist.md has a whole sentence."""
    results = sweep({**ALONE, **LOSSLESS, V3: (range(0, 150), 0.3), ("speed", 0.8): (range(0, 119), 0.1)})
    assert claim(results, 1.0).shown == results.point(1.0, *V3)
    dearer = claim(sweep({**ALONE, **LOSSLESS, V3: (range(0, 150), 0.7)}), 1.0)
    assert "reject" not in dearer.headline, "rejections are named only where they are fewer"
    alike = {"verifier_only": (range(0, 100), 0.0), "drafter_only": (range(50, 150), 0.0)}
    experts = said(claim(sweep({**alike, **LOSSLESS, V3: (range(0, 150), 0.3)}), 1.0))
    assert "75 of 100 questions right, the verifier alone 50, the drafter alone 50" in experts


def test_a_sweep_opens_at_its_lowest_temperature_where_a_cascade_beats_both_models_else_in_the_middle() -> (
    None
):
    def heated(right: Mapping[float, int]) -> Results:
        points = [
            replace(point, setting=replace(point.setting, temperature=temperature))
            for temperature, count in right.items()
            for point in sweep({**ALONE, **LOSSLESS, V3: (range(0, count), 0.3)}).points
        ]
        return replace(sweep(ALONE), points=tuple(points))

    assert opening_temperature(heated({0.0: 150, 0.5: 119, 1.0: 190})) == 0.0
    assert opening_temperature(heated({0.0: 118, 0.5: 119, 1.0: 190})) == 0.5


def test_what_may_be_chance_beats_nobody() -> None:
    """One that is ahead; and one of forty-one whose interval lies above 0, as chance would give."""
    assert "perhaps by chance" in said(claim(sweep({**ALONE, **LOSSLESS, V3: (range(2, 123), 0.3)}), 1.0))
    made = sweep({**ALONE, **LOSSLESS, ("cascade_chow", 0.5): (range(0, 100), 0.3)})
    *others, point = made.points
    many = [replace(point, setting=Setting(1.0, "cascade_chow", number / 50)) for number in range(41)]
    many[0] = replace(many[0], beats_both="surely")
    assert "No cascade surely beats both" in said(claim(replace(made, points=(*others, *many)), 1.0))


def test_shares_round_halves_up_as_the_browser_does() -> None:
    assert [*map(of_hundred, (0.565, 0.295, 0.305, -0.025, 1.0))] == [57, 30, 31, -2, 100]


def test_without_what_a_claim_needs_it_says_what_is_missing() -> None:
    alike = {"verifier_only": (range(0, 100), 0.0), "drafter_only": (range(50, 151), 0.0)}
    alone = {V3: (range(0, 119), 0.3)}
    for results, words in (
        (sweep({**alike, V3: (range(0, 99), 0.3)}), "do not tell the two models apart"),
        (sweep(alone), "lacks the accuracy of both models"),
        # With few items intervals are too narrow, and everything would be sure.
        (sweep({**ALONE, **LOSSLESS, V3: (range(ITEMS), 0.3)}, FEWEST_ITEMS - 1), "too few"),
        (sweep({**ALONE, **alone}, complete=False), "not finished"),
        (sweep({**ALONE, **alone}), "instead of all, as the verifier alone"),
    ):
        assert words in said(claim(results, 1.0))
