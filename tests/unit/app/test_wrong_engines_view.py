"""The cards of the wrong engines have the numbers of their laws."""

from __future__ import annotations

import numpy as np
import pytest

from specviz.analysis.wrong_engines import EXAMPLE, WRONG
from specviz.app.components.wrong_engines_view import WORDS, engine_card

Q, P = EXAMPLE


def test_resampling_from_p_is_as_computed_by_hand() -> None:
    """A word is kept with min(p, q), and all that is rejected is drawn from p."""
    card = engine_card(next(rule for rule in WRONG if rule.name == "resampling from p"))
    kept = np.minimum(P, Q)
    writes = kept + (1 - kept.sum()) * P
    assert card["after"] is None
    assert card["writes"] == pytest.approx(writes)
    assert card["should"] == pytest.approx(P)
    assert card["word"] == np.abs(writes - P).argmax()
    both = np.abs(np.outer(writes, writes) - np.outer(P, P)).sum() / 2
    assert card["biases"] == pytest.approx([np.abs(writes - P).sum() / 2, both])


def test_an_unexamined_token_is_the_drafters_after_a_word_that_was_accepted() -> None:
    """The drafter proposes "sea" too often, so there it is always a proposal that was accepted."""
    card = engine_card(next(rule for rule in WRONG if "K-th" in rule.name))
    assert card["after"] == WORDS[0]
    assert card["writes"] == pytest.approx(Q)
    assert card["should"] == pytest.approx(P)
