"""What a sweep claims follows from its texts by rule: recomputed from the recorded ones, and on sweeps made for each case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from specviz.analysis.sweep.claim import CURVES, FEWEST_ITEMS, KEPT, Claim, claim
from specviz.analysis.sweep.estimates import estimate_points
from specviz.analysis.sweep.folder import SHELF, SweepFolder, open_recorded
from specviz.analysis.sweep.grid import Setting
from specviz.analysis.sweep.items import Items
from specviz.analysis.sweep.results import Results
from specviz.analysis.sweep.sample import Sample
from specviz.core.methods import METHODS

ITEMS = 200
ALONE = {"verifier_only": (range(0, 120), 0.0), "drafter_only": (range(0, 20), 0.0)}
LOSSLESS = {"speed": (range(0, 120), 0.6)}


def sweep(
    made: Mapping[str | tuple[str, float], tuple[Any, float]], items: int = ITEMS, **more: Any
) -> Results:
    """A sweep whose settings get these items right and reject that share, a little more of some items than of others.

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
    return Results(
        {}, "drafter", "verifier", "float32", items, estimate_points(settings, items, samples), **more
    )


def said(found: Claim) -> str:
    return " ".join([found.headline, *found.details]).replace("\u00a0", " ").replace("\u2060", "")


def test_the_claim_of_the_recorded_sweep_is_that_of_its_texts() -> None:
    """Every text scored again and every interval drawn again: the sentences of each temperature are those that are shown."""
    store, shelf = SweepFolder(SHELF), open_recorded()
    header = store.header()
    assert header is not None
    assert shelf is not None
    items = Items("", header.items)
    samples = [replace(one, score=items.score(one.item, one.text)) for one in store.samples()]
    again = header.results(samples)
    for temperature in again.temperatures:
        assert claim(again, temperature) == replace(
            claim(shelf.results, temperature), saving=claim(again, temperature).saving
        )


def test_a_clear_winner() -> None:
    """It keeps all, rejects surely less than lossless decoding and than the others, and no cascade is better than both."""
    winner, loser = ("cascade_tokenV3", 0.6), ("cascade_chow", 0.4)
    found = claim(
        sweep({**ALONE, **LOSSLESS, winner: (range(0, 119), 0.3), loser: (range(0, 118), 0.5)}), 1.0
    )
    text = said(found)
    assert text.startswith("At temperature 1, Token V3 (α = 0.6) keeps 99 % (")
    assert "fewer rejections than lossless decoding; no cascade is more accurate than both models." in text
    assert "Every other method that keeps as much surely rejects more." in text
    assert "overlap" not in text
    assert found.curves == ("cascade_tokenV3", "speed", "cascade_chow")
    assert [point.setting.method for point in found.saving] == ["cascade_tokenV3", "cascade_chow"]
    assert found.level == ("speed",)


def test_intervals_that_overlap_are_said_to() -> None:
    """Of two that reject about the same, which one is ahead is left open; so is how much is kept."""
    pair = {("cascade_tokenV3", 0.6): (range(3, 120), 0.4), ("cascade_opt", 0.2): (range(4, 121), 0.402)}
    text = said(claim(sweep({**ALONE, **LOSSLESS, **pair}), 1.0))
    assert "not surely fewer than those of" in text
    assert "the intervals overlap, and which of them saves most is left open" in text


def test_a_saving_that_may_be_chance_is_no_saving() -> None:
    """Fewer rejections whose interval holds none: the headline says that none surely saves."""
    made = sweep({**ALONE, **LOSSLESS, ("cascade_tokenV3", 0.3): (range(0, 120), 0.585)})
    point = made.point(1.0, "cascade_tokenV3", 0.3)
    assert point is not None
    assert point.ratios["rejection_rate"].value <= 0.99
    wide = replace(point.ratios["rejection_rate"], high=1.02)
    unsure = replace(point, ratios={**point.ratios, "rejection_rate": wide})
    text = said(claim(replace(made, points=(*made.points[:-1], unsure)), 1.0))
    assert "no method surely saves rejections: Token V3" in text


def test_nothing_that_keeps_enough() -> None:
    """A headline also where no method reaches the bar with fewer rejections, with lossless decoding's for a measure."""
    found = claim(sweep({**ALONE, **LOSSLESS, ("cascade_tokenV3", 0.9): (range(0, 60), 0.2)}), 1.0)
    assert f"no method keeps {KEPT:.0%}".replace("%", " %") in said(found)
    assert "fewer rejections than lossless decoding (60 %" in said(found)
    assert found.never == ("cascade_tokenV3",)
    assert "speed" in found.curves


def test_what_keeps_it_and_is_surely_less_accurate_is_called_so() -> None:
    """At 96 % on the same items the interval may lie below all of it."""
    text = said(claim(sweep({**ALONE, **LOSSLESS, ("cascade_tokenV3", 0.6): (range(0, 115), 0.3)}), 1.0))
    assert "and is surely less accurate" in text


def test_a_cascade_above_both_models_is_named_where_it_is_sure() -> None:
    """One that is ahead by less than its interval beats nobody surely."""
    sure = claim(sweep({**ALONE, **LOSSLESS, ("cascade_tokenV3", 0.6): (range(0, 150), 0.3)}), 1.0)
    assert "Token V3 (α = 0.6) is surely more accurate than both models (75 %" in said(sure)
    perhaps = said(claim(sweep({**ALONE, **LOSSLESS, ("cascade_tokenV3", 0.6): (range(2, 123), 0.3)}), 1.0))
    assert "no cascade surely beats both models." in perhaps
    assert "1 of 1 cascade settings gets more items right than both." in perhaps


def test_as_many_above_both_as_chance_gives_are_none() -> None:
    """One of forty-one intervals lies above 0 by chance."""
    made = sweep({**ALONE, **LOSSLESS, ("cascade_chow", 0.5): (range(0, 100), 0.3)})
    *others, point = made.points
    many = [replace(point, setting=Setting(1.0, "cascade_chow", number / 50)) for number in range(41)]
    many[0] = replace(many[0], beats_both="surely")
    text = said(claim(replace(made, points=(*others, *many)), 1.0))
    assert "no cascade surely beats both models" in text
    assert "as often as chance alone would have it" in text


@pytest.mark.parametrize("items", [1, FEWEST_ITEMS - 1])
def test_of_few_items_nothing_is_claimed(items: int) -> None:
    """With one item every interval has no width, and everything would be sure."""
    text = said(
        claim(sweep({**ALONE, **LOSSLESS, ("cascade_tokenV3", 0.6): (range(ITEMS), 0.3)}, items), 1.0)
    )
    assert (
        "nothing is claimed: " + ("1 item was asked" if items == 1 else f"{items} items were asked") in text
    )
    assert "keeps" not in text


def test_without_what_a_claim_needs_it_says_what_is_missing() -> None:
    """Models that are not told apart, no model alone, a sweep that is not over, and no lossless decoding."""
    winner = {("cascade_tokenV3", 0.6): (range(0, 119), 0.3)}
    alike = {"verifier_only": (range(0, 100), 0.0), "drafter_only": (range(50, 151), 0.0)}
    assert "do not tell the two models apart" in said(claim(sweep({**alike, **winner}), 1.0))
    assert "without both models’ accuracy" in said(claim(sweep(winner), 1.0))
    assert "not at its end" in said(claim(sweep({**ALONE, **winner}, complete=False), 1.0))
    text = said(claim(sweep({**ALONE, **winner}), 1.0))
    assert "fewer rejections than the verifier alone" in text


def test_a_few_curves_matter_however_many_there_are() -> None:
    """Of every method that is registered: the claim's own, `speed`, and one more."""
    names = [name for name, method in METHODS.items() if method.has_lenience and name != "speed"]
    assert len(names) > CURVES
    made = {(name, METHODS[name].offered_range[1]): (range(0, 119), 0.5) for name in names}
    found = claim(sweep({**ALONE, **LOSSLESS, **made}), 1.0)
    assert len(found.curves) == CURVES
    assert "speed" in found.curves
    assert found.curves[0] == found.saving[0].setting.method
