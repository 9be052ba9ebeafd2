"""The words of the tab Speed or quality: a card's figures are its point's, its texts those of one item, the example an item."""

from __future__ import annotations

import pytest

from specviz.analysis.sweep.folder import Recorded, open_recorded
from specviz.analysis.sweep.results import Point
from specviz.app.tabs.tradeoff_words import MAX_CHARACTERS, MAX_TEXTS, asked, card, finding, source, texts_of


@pytest.fixture(scope="module")
def sweep() -> Recorded:
    found = open_recorded()
    assert found is not None
    return found


@pytest.fixture(scope="module")
def point(sweep: Recorded) -> Point:
    found = sweep.results.point(0.5, "cascade_tokenV3", 0.6)
    assert found is not None
    return found


def test_a_card_has_four_figures_with_intervals_beside_the_verifiers(sweep: Recorded, point: Point) -> None:
    """In the order quality, rejections, calls, time; what has no width shows none."""
    made = card(sweep.results, point, texts_of(sweep, point))
    titles = [each["title"] for each in made["figures"]]
    assert titles == ["Task accuracy", "Rejection rate", "Verifier calls per token", "Relative latency"]
    accuracy = point.figures["accuracy"]
    assert made["figures"][0]["value"] == f"{100 * accuracy.value:.1f}%"
    assert made["figures"][0]["interval"] == f"{100 * accuracy.low:.1f}% to {100 * accuracy.high:.1f}%"
    assert all(each["beside"].startswith("verifier ") for each in made["figures"])
    verifier = sweep.results.point(0.5, "verifier_only")
    assert verifier is not None
    assert card(sweep.results, verifier, [])["figures"][1]["interval"] == ""


def test_its_texts_are_of_one_item_each_and_begin_where_they_differ(sweep: Recorded, point: Point) -> None:
    texts = texts_of(sweep, point)
    made = card(sweep.results, point, texts)
    assert len(made["texts"]) == len(texts) <= MAX_TEXTS
    for text, shown in zip(texts, made["texts"], strict=True):
        assert text.verifier is not None
        assert (text.own.item, text.own.seed) == (text.verifier.item, text.verifier.seed)
        assert shown["own"]["text"] == text.own.text[:MAX_CHARACTERS]
        assert shown["verifier"]["text"] == text.verifier.text[:MAX_CHARACTERS]
    differ = [each["own"]["text"] != each["verifier"]["text"] for each in made["texts"]]
    assert made["first"] == differ.index(True)


def test_what_was_asked_is_said_with_an_item_of_the_sweep(sweep: Recorded) -> None:
    """Counts are those of the items, and the source names pair, items and temperature."""
    said = dict(asked(sweep))
    assert said["Task"].startswith(f"{len(sweep.items)} questions")
    assert any(said["Example"].startswith(item.prompt) for item in sweep.items)
    words = source(sweep.results, 0.5)
    assert sweep.results.drafter in words
    assert f"{sweep.results.items} items" in words
    assert "temperature 0.5" in words
    assert "temperature 0.5" in finding(sweep.results, 0.5)[0]
