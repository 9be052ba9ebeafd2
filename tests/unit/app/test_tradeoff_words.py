"""The words of the place Speed or quality: the sentence's numbers stand on the card, whose texts are of one item."""

from __future__ import annotations

import re

import pytest

from specviz.analysis.sweep.folder import open_recorded
from specviz.analysis.sweep.results import Results
from specviz.app.tabs.tradeoff_words import MAX_CHARACTERS, card, texts_of, told


@pytest.fixture(scope="module")
def sweep() -> Results:
    return open_recorded()


def test_every_number_of_the_sentence_stands_on_its_points_card(sweep: Results) -> None:
    """With the same rounding: its lenience in the title, the others among the figures and what they are compared with."""
    for said in told(sweep)["claims"]:
        made = card(sweep, sweep.points[said["shown"]])
        there = " ".join([made["title"], *(" ".join(each.values()) for each in made["figures"])])
        assert set(re.findall(r"[\d.]*\d", said["headline"])) <= {*re.findall(r"[\d.]*\d", there), "100"}


def test_its_texts_are_of_one_item_each_and_begin_where_only_one_is_right(sweep: Results) -> None:
    point = sweep.point(0.5, "cascade_tokenV3", 0.6)
    assert point is not None
    made = card(sweep, point)
    for (own, verifier), shown in zip(texts_of(sweep, point), made["texts"], strict=True):
        assert verifier is not None
        assert (own.item, own.seed) == (verifier.item, verifier.seed)
        for text, side in ((own.text, "own"), (verifier.text, "verifier")):
            assert shown[side]["text"] == text[:MAX_CHARACTERS]
    right = [(each["own"]["right"], each["verifier"]["right"]) for each in made["texts"]]
    gained, lost = (True, False), (False, True)
    assert made["first"] == right.index(max((gained, lost), key=right.count))
