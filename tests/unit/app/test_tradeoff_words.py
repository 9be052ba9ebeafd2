"""What the trade-off says in words: a card's figures are its point's, its texts those of one item, and the example is an item."""

from __future__ import annotations

from specviz.analysis.sweep.folder import Recorded, open_recorded
from specviz.app.tabs.tradeoff_words import MAX_CHARACTERS, MAX_TEXTS, asked, card, finding, source, texts_of

COSTS = open_recorded().costs  # type: ignore[union-attr]


def recorded() -> Recorded:
    found = open_recorded()
    assert found is not None
    return found


def test_a_card_has_four_figures_with_intervals_beside_the_verifiers() -> None:
    """In the order quality, rejections, calls, time; what has no width shows none."""
    sweep = recorded()
    point = sweep.results.point(0.5, "cascade_tokenV3", 0.6)
    assert point is not None
    made = card(sweep.results, point, texts_of(sweep, point), COSTS)
    titles = [each["title"].split(",")[0] for each in made["figures"]]
    assert titles == ["Task accuracy", "Rejection rate", "Verifier calls per token", "Relative latency"]
    accuracy = point.figures["accuracy"]
    assert made["figures"][0]["value"] == f"{100 * accuracy.value:.1f}%"
    assert made["figures"][0]["interval"] == f"{100 * accuracy.low:.1f}% to {100 * accuracy.high:.1f}%"
    assert all(each["beside"].startswith("verifier ") for each in made["figures"])
    verifier = sweep.results.point(0.5, "verifier_only")
    assert verifier is not None
    assert card(sweep.results, verifier, [], COSTS)["figures"][1]["interval"] == ""


def test_its_texts_are_of_one_item_each_and_begin_where_they_differ() -> None:
    sweep = recorded()
    point = sweep.results.point(0.5, "cascade_tokenV3", 0.6)
    assert point is not None
    texts = texts_of(sweep, point)
    made = card(sweep.results, point, texts, COSTS)
    assert len(made["texts"]) == len(texts) <= MAX_TEXTS
    for text, shown in zip(texts, made["texts"], strict=True):
        assert text.verifier is not None
        assert (text.own.item, text.own.seed) == (text.verifier.item, text.verifier.seed)
        assert shown["own"]["text"] == text.own.text[:MAX_CHARACTERS]
        assert shown["verifier"]["text"] == text.verifier.text[:MAX_CHARACTERS]
    first = made["texts"][made["first"]]
    assert first["own"]["text"] != first["verifier"]["text"]
    before = made["texts"][: made["first"]]
    assert all(each["own"]["text"] == each["verifier"]["text"] for each in before)


def test_what_was_asked_is_said_with_an_item_of_the_sweep() -> None:
    """Counts are those of the items, and the source names pair, items and temperature."""
    sweep = recorded()
    said = dict(asked(sweep))
    assert said["Task"].startswith(f"{len(sweep.items)} questions")
    assert any(said["For example"].startswith(item.prompt) for item in sweep.items)
    words = source(sweep.results, 0.5)
    assert sweep.results.drafter in words
    assert f"{sweep.results.items} items" in words
    assert "temperature 0.5" in words
    assert "temperature 0.5" in finding(sweep.results, 0.5)[0]
