"""The words of the place Speed or quality: the sentence's numbers stand on the card, whose texts are of one item."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from specviz.analysis.sweep.folder import open_recorded
from specviz.analysis.sweep.results import Point, Results
from specviz.app.tabs.tradeoff_words import MAX_CHARACTERS, MAX_TEXTS, card, texts_of, told


@pytest.fixture(scope="module")
def sweep() -> Results:
    found = open_recorded()
    assert found is not None
    return found


@pytest.fixture(scope="module")
def point(sweep: Results) -> Point:
    found = sweep.point(0.5, "cascade_tokenV3", 0.6)
    assert found is not None
    return found


@pytest.mark.parametrize("at", [0, 1, 2])
def test_every_number_of_the_sentence_stands_on_its_points_card(sweep: Results, at: int) -> None:
    """With the same rounding: its lenience in the title, the others among the figures and what they are compared with."""
    said = told(sweep)["claims"][at]
    made = card(sweep, sweep.points[said["shown"]])
    there = re.findall(
        r"[\d.]*\d", " ".join([made["title"], *(" ".join(each.values()) for each in made["figures"])])
    )
    assert set(re.findall(r"[\d.]*\d", said["headline"])) <= {*there, "100"}
    assert len(said["curves"]) == 4


def test_the_models_are_called_tiny_where_their_sizes_are_known(sweep: Results) -> None:
    """Once, with the numbers of the registry; of a pair that is not in it nothing is said."""
    said = told(sweep)
    assert said["models"].startswith("Both models are tiny (17 and 135 million parameters")
    assert said["task"].count(said["models"]) == 1
    unknown = replace(sweep, plan=replace(sweep.plan, pair="nobody’s"))
    assert told(unknown)["models"] == ""


def test_a_card_has_four_figures_beside_what_they_are_compared_with(sweep: Results, point: Point) -> None:
    """What has no width shows no interval."""
    accuracy, rejected, passes, time = card(sweep, point)["figures"]
    assert (accuracy["value"], accuracy["interval"].strip()) == ("57 of 100", "50 to 63")
    assert (accuracy["beside"], rejected["beside"]) == ("verifier 60, drafter 17", "lossless 34\u00a0%")
    assert (passes["title"], time["title"]) == ("Verifier passes per token", "Time per token")
    verifier = sweep.point(0.5, "verifier_only")
    assert verifier is not None
    assert card(sweep, verifier)["figures"][1]["interval"] == ""


def test_its_texts_are_of_one_item_each_and_begin_where_only_one_is_right(
    sweep: Results, point: Point
) -> None:
    texts, made = texts_of(sweep, point), card(sweep, point)
    assert len(made["texts"]) == len(texts) <= MAX_TEXTS
    for (own, verifier), shown in zip(texts, made["texts"], strict=True):
        assert verifier is not None
        assert (own.item, own.seed) == (verifier.item, verifier.seed)
        assert shown["own"]["text"] == own.text[:MAX_CHARACTERS]
        assert shown["verifier"]["text"] == verifier.text[:MAX_CHARACTERS]
    right = [(each["own"]["right"], each["verifier"]["right"]) for each in made["texts"]]
    gained, lost = (True, False), (False, True)
    assert made["first"] == right.index(max((gained, lost), key=right.count))
