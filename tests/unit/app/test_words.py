"""What the page says is true, and says the same thing by the same words everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from specviz.analysis.recorded_runs import read_recorded_runs
from specviz.analysis.sweep.results import FIGURES
from specviz.core.methods import METHODS

STATIC = Path(__file__).parents[3] / "specviz" / "app" / "static"
OLD = ("block efficiency", "≥ coin", "log-probability")
"""Said otherwise now: tokens per verifier call, plain words, verifier log-likelihood."""


@pytest.mark.parametrize("word", OLD)
def test_an_old_word_is_nowhere_on_the_page(word: str) -> None:
    titles = " ".join(figure.title for figure in FIGURES.values())
    assert word not in titles.lower()
    for file in [*STATIC.rglob("*.js"), *STATIC.rglob("*.html")]:
        assert word not in file.read_text(encoding="utf-8").lower(), file.name


def test_only_greedy_text_is_called_the_verifiers_own() -> None:
    """Lossless is a distribution: above temperature 0 the text is another one than the verifier alone writes."""
    shelf = read_recorded_runs()
    for each in shelf.runs:
        words = f"{each.title} {each.story}"
        run = shelf.load(each.key)
        if "verifier’s own" in words:
            assert (run.temperature, run.lenience, run.method) == (0, 0, "speed"), each.key
    assert "distribution" in METHODS["speed"].sentence
    assert "temperature 0" in METHODS["speed"].sentence
