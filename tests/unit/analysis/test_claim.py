"""What a sweep claims follows from its texts by rule, on sweeps made for each case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

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
    assert " of 100) is hardly chance. No cascade beats both models here." in said(found)
    alike = said(claim(sweep({**ALONE, **LOSSLESS, V3: (range(10, 126), 0.3)}), 1.0))
    assert "answers 58 of 100 questions right, not the verifier’s 60. " in alike
    assert " of 100) may be chance." in alike


def test_every_setting_is_read_in_the_words_of_the_headline() -> None:
    """Lossless decoding, one that rejects as much, one that answers more, and the models alone."""
    same, more = ("cascade_chow", 0.4), ("cascade_diff", 0.2)
    lossless = {"speed": (range(0, 120), 1.0)}
    results = sweep({**ALONE, **lossless, same: (range(0, 120), 1.0), more: (range(0, 130), 0.3)})
    read = {
        (point.setting.method, point.setting.lenience): reading(results, point).replace("\u00a0", " ")
        for point in results.at(1.0)
    }
    assert read["speed", 0.0].startswith(
        "Speculative decoding at lenience 0 is lossless: it rejects 100 % of the drafts, and "
    )
    assert read[same].startswith(
        "Chow at lenience 0.4 rejects 100 % of the drafts, as lossless decoding does, and "
    )
    assert read[more].endswith("answers 65 of 100 questions right, more than the verifier’s 60.")
    assert read["verifier_only", 0.0] == "The verifier alone answers 60 of 100 questions right."
    assert read["drafter_only", 0.0] == (
        "The drafter alone answers 10 of 100 questions right, not the verifier’s 60."
    )


def test_without_a_sure_saving_the_sentence_is_about_lossless_decoding() -> None:
    made = sweep({**ALONE, **LOSSLESS, ("cascade_tokenV3", 0.3): (range(0, 120), 0.585)})
    *others, point = made.points
    wide = replace(point.ratios["rejection_rate"], high=1.02)
    unsure = replace(point, ratios={**point.ratios, "rejection_rate": wide})
    text = said(claim(replace(made, points=(*others, unsure)), 1.0))
    assert text.startswith("No method surely rejects fewer drafts than lossless decoding, 60 %, and still ")
    none = sweep({**ALONE, **LOSSLESS, ("cascade_tokenV3", 0.9): (range(0, 60), 0.2)})
    found = claim(none, 1.0)
    assert said(found) == (
        "No method rejects fewer drafts than lossless decoding, 60 %, and still answers about as many questions as the "
        "verifier, 60 of 100. “About as many” means at least 95 %. No cascade beats both models here."
    )
    assert found.shown == none.point(1.0, "speed")


def test_a_cascade_that_surely_beats_both_models_is_the_sentence() -> None:
    """The most accurate one, whatever rejects least; docs/specialist.md has a whole sentence."""
    made = {**ALONE, **LOSSLESS, V3: (range(0, 150), 0.3), ("speed", 0.8): (range(0, 119), 0.1)}
    results = sweep(made)
    assert claim(results, 1.0).shown == results.point(1.0, *V3)
    dearer = said(claim(sweep({**ALONE, **LOSSLESS, V3: (range(0, 150), 0.7)}), 1.0))
    assert "the drafter alone 10. " in dearer, "rejections are named only where they are fewer"
    alike = {"verifier_only": (range(0, 100), 0.0), "drafter_only": (range(50, 150), 0.0)}
    experts = said(claim(sweep({**alike, **LOSSLESS, V3: (range(0, 150), 0.3)}), 1.0))
    assert "75 of 100 questions right, the verifier alone 50, the drafter alone 50" in experts


def test_a_sweep_opens_at_its_lowest_temperature_where_a_cascade_beats_both_models_else_in_the_middle() -> (
    None
):
    def heated(right: Mapping[float, int]) -> Results:
        made = {
            temperature: sweep({**ALONE, **LOSSLESS, V3: (range(0, count), 0.3)})
            for temperature, count in right.items()
        }
        points = [
            replace(point, setting=replace(point.setting, temperature=temperature))
            for temperature, results in made.items()
            for point in results.points
        ]
        return replace(made[0.0], points=tuple(points))

    assert opening_temperature(heated({0.0: 150, 0.5: 119, 1.0: 190})) == 0.0
    assert opening_temperature(heated({0.0: 118, 0.5: 119, 1.0: 190})) == 0.5


def test_what_may_be_chance_beats_nobody() -> None:
    """One that is ahead; and one of forty-one whose interval lies above 0, as chance would give."""
    perhaps = said(claim(sweep({**ALONE, **LOSSLESS, V3: (range(2, 123), 0.3)}), 1.0))
    assert "beats both models here; 1 of 1 settings are ahead, perhaps by chance." in perhaps
    made = sweep({**ALONE, **LOSSLESS, ("cascade_chow", 0.5): (range(0, 100), 0.3)})
    *others, point = made.points
    many = [replace(point, setting=Setting(1.0, "cascade_chow", number / 50)) for number in range(41)]
    many[0] = replace(many[0], beats_both="surely")
    assert "No cascade surely beats both" in said(claim(replace(made, points=(*others, *many)), 1.0))


@pytest.mark.parametrize(
    ("share", "hundredths"), [(0.565, 57), (0.295, 30), (0.305, 31), (-0.025, -2), (1.0, 100)]
)
def test_shares_round_halves_up_as_the_browser_does(share: float, hundredths: int) -> None:
    assert of_hundred(share) == hundredths


def test_without_what_a_claim_needs_it_says_what_is_missing() -> None:
    winner = {V3: (range(0, 119), 0.3)}
    alike = {"verifier_only": (range(0, 100), 0.0), "drafter_only": (range(50, 151), 0.0)}
    assert "do not tell the two models apart" in said(claim(sweep({**alike, V3: (range(0, 99), 0.3)}), 1.0))
    assert "lacks the accuracy of both models" in said(claim(sweep(winner), 1.0))
    # With one item every interval has no width, and everything would be sure.
    for items, few in ((1, "1 question is"), (FEWEST_ITEMS - 1, f"{FEWEST_ITEMS - 1} questions are")):
        text = said(claim(sweep({**ALONE, **LOSSLESS, V3: (range(ITEMS), 0.3)}, items), 1.0))
        assert text.startswith(f"Nothing is claimed: {few} too few")
    assert "not finished" in said(claim(sweep({**ALONE, **winner}, complete=False), 1.0))
    assert "instead of all, as the verifier alone" in said(claim(sweep({**ALONE, **winner}), 1.0))
