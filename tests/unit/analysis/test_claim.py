"""What a sweep claims follows from its texts by rule, on sweeps made for each case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from specviz.analysis.sweep.claim import CURVES, FEWEST_ITEMS, Claim, best_settings, claim
from specviz.analysis.sweep.estimates import estimate_points
from specviz.analysis.sweep.grid import Setting, SweepGrid
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
    points = estimate_points(settings, items, samples)
    return Results(SweepGrid(), "drafter", "verifier", "float32", items, points, **more)


def said(found: Claim) -> str:
    return " ".join([found.headline, *found.details]).replace("\u00a0", " ").replace("\u2060", "")


def test_a_clear_winner() -> None:
    """It answers as many, surely rejects less than lossless decoding and than the others, and no cascade beats both."""
    loser = ("cascade_chow", 0.4)
    results = sweep({**ALONE, **LOSSLESS, V3: (range(0, 119), 0.3), loser: (range(0, 118), 0.5)})
    found = claim(results, 1.0)
    assert found.headline.replace("\u00a0", " ") == (
        "At temperature 1, Token V3 (α = 0.6) rejects 51 % fewer drafts and answers about as many questions. "
        "No cascade beats both models here."
    )
    assert "gets 99 % (" in said(found)
    assert "Every other method that answers as many surely rejects more." in said(found)
    assert found.curves == ("cascade_tokenV3", "speed", "cascade_chow")
    assert list(best_settings(results, 1.0)) == ["cascade_tokenV3", "cascade_chow", "speed"]
    assert found.best == results.point(1.0, *V3)


def test_lenient_speculative_decoding_is_called_accepting_more() -> None:
    text = said(claim(sweep({**ALONE, **LOSSLESS, ("speed", 0.8): (range(0, 119), 0.3)}), 1.0))
    assert text.startswith("At temperature 1, accepting more (speculative decoding, α = 0.8) rejects ")


def test_intervals_that_overlap_are_named() -> None:
    pair = {V3: (range(3, 120), 0.4), ("cascade_opt", 0.2): (range(4, 121), 0.402)}
    assert "The interval overlaps with that of " in said(claim(sweep({**ALONE, **LOSSLESS, **pair}), 1.0))


def test_a_saving_that_may_be_chance_is_no_saving() -> None:
    made = sweep({**ALONE, **LOSSLESS, ("cascade_tokenV3", 0.3): (range(0, 120), 0.585)})
    *others, point = made.points
    assert point.ratios["rejection_rate"].value <= 0.99
    wide = replace(point.ratios["rejection_rate"], high=1.02)
    unsure = replace(point, ratios={**point.ratios, "rejection_rate": wide})
    text = said(claim(replace(made, points=(*others, unsure)), 1.0))
    assert "no method surely rejects fewer drafts" in text


def test_nothing_that_answers_enough() -> None:
    """A headline also where no method reaches the bar with fewer rejections, with lossless decoding's for comparison."""
    found = claim(sweep({**ALONE, **LOSSLESS, ("cascade_tokenV3", 0.9): (range(0, 60), 0.2)}), 1.0)
    assert "no method rejects fewer drafts and still answers about as many questions." in said(found)
    assert "Lossless decoding rejects 60 %" in said(found)
    assert "speed" in found.curves
    assert found.best is None


def test_what_surely_answers_fewer_is_called_so() -> None:
    """With 96 % of the verifier's answers on the same items, the interval may lie below 100 %."""
    text = said(claim(sweep({**ALONE, **LOSSLESS, V3: (range(0, 115), 0.3)}), 1.0))
    assert "fewer drafts and answers 4 % fewer questions." in text


def test_a_cascade_beats_both_models_only_where_it_is_sure() -> None:
    sure = said(claim(sweep({**ALONE, **LOSSLESS, V3: (range(0, 150), 0.3)}), 1.0))
    assert "Token V3 (α = 0.6) beats both models." in sure
    assert "answers 75 % (" in sure
    perhaps = said(claim(sweep({**ALONE, **LOSSLESS, V3: (range(2, 123), 0.3)}), 1.0))
    assert "No cascade surely beats both models here." in perhaps
    assert "1 of 1 cascade settings answers more questions than both models" in perhaps


def test_as_many_above_both_as_chance_gives_are_none() -> None:
    """One of forty-one intervals lies above 0 by chance."""
    made = sweep({**ALONE, **LOSSLESS, ("cascade_chow", 0.5): (range(0, 100), 0.3)})
    *others, point = made.points
    many = [replace(point, setting=Setting(1.0, "cascade_chow", number / 50)) for number in range(41)]
    many[0] = replace(many[0], beats_both="surely")
    assert "No cascade surely beats both" in said(claim(replace(made, points=(*others, *many)), 1.0))


@pytest.mark.parametrize("items", [1, FEWEST_ITEMS - 1])
def test_of_few_items_nothing_is_claimed(items: int) -> None:
    """With one item every interval has no width, and everything would be sure."""
    text = said(claim(sweep({**ALONE, **LOSSLESS, V3: (range(ITEMS), 0.3)}, items), 1.0))
    assert "nothing is claimed: " + ("1 question is" if items == 1 else f"{items} questions are") in text
    assert "rejects" not in text


def test_without_what_a_claim_needs_it_says_what_is_missing() -> None:
    winner = {V3: (range(0, 119), 0.3)}
    alike = {"verifier_only": (range(0, 100), 0.0), "drafter_only": (range(50, 151), 0.0)}
    assert "do not tell the two models apart" in said(claim(sweep({**alike, **winner}), 1.0))
    assert "lacks the accuracy of both models" in said(claim(sweep(winner), 1.0))
    assert "not finished" in said(claim(sweep({**ALONE, **winner}, complete=False), 1.0))
    assert "fewer drafts than the verifier alone" in said(claim(sweep({**ALONE, **winner}), 1.0))


def test_few_curves_stand_out_however_many_there_are() -> None:
    names = [name for name, method in METHODS.items() if method.has_lenience and name != "speed"]
    made = {(name, METHODS[name].offered_range[1]): (range(0, 119), 0.5) for name in names}
    found = claim(sweep({**ALONE, **LOSSLESS, **made}), 1.0)
    assert len(found.curves) == CURVES < len(names)
    assert "speed" in found.curves
    assert found.best
    assert found.curves[0] == found.best.setting.method
