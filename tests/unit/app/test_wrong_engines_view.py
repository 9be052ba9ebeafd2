"""The cards of the wrong engines have the numbers of their laws."""

from __future__ import annotations

import pytest

from specviz.analysis.wrong_engines import EXAMPLE, WRONG
from specviz.app.components.wrong_engines_view import WORDS, engine_card

Q, P = EXAMPLE


def test_an_unexamined_token_is_the_drafters_after_a_word_that_was_accepted() -> None:
    """The drafter proposes "sea" too often, so there it is always a proposal that was accepted."""
    card = engine_card(next(rule for rule in WRONG if "K-th" in rule.name))
    assert card["after"] == WORDS[0]
    assert card["writes"] == pytest.approx(Q)
    assert card["should"] == pytest.approx(P)
