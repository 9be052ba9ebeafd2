"""From agreement along texts and costs of passes to tokens per call and speed-up: laws of the formulas, without a model."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from specviz.analysis.fit import (
    LONGEST,
    Agreement,
    Blocks,
    Costs,
    block_positions,
    leviathan_speed_up,
)
from specviz.engine.draft_length import expected_tokens

LENGTHS = range(1, LONGEST + 1)
COSTS = Costs({1: 1.2, 2: 1.35, 4: 1.8, 8: 2.9}, draft=0.1)


def _texts(*shares: float) -> list[Agreement]:
    return [Agreement([share] * 500, [share] * 500) for share in shares]


@pytest.mark.parametrize("share", [0.0, 0.3, 0.62, 0.95])
def test_at_a_constant_acceptance_rate_tokens_per_call_have_the_closed_form(share: float) -> None:
    """But for the blocks that the end of a text cuts, one in each text."""
    for k in LENGTHS:
        found = Blocks.of(_texts(share, share), k)
        assert np.allclose(found.acceptance[found.reached > 0], share)
        assert np.allclose(found.tokens_per_call, (1 - share**k) / (1 - share), rtol=0.02)
        # Leviathan's theorem has as many tokens per call; only its costs differ.
        assert leviathan_speed_up(share, k, 0.1) * (1 + 0.1 * (k - 1)) == pytest.approx(
            expected_tokens(share, k)
        )


def test_blocks_along_a_text_are_what_all_outcomes_average_to() -> None:
    """Enumerated: every pattern of acceptance of a short text, cut into blocks by hand."""
    kept = [0.9, 0.2, 0.5, 1.0, 0.7, 0.4]
    for k in LENGTHS:
        found = np.zeros((len(kept), k))
        for pattern in itertools.product((True, False), repeat=len(kept)):
            weight = np.prod([share if yes else 1 - share for share, yes in zip(kept, pattern, strict=True)])
            position = 0
            for index, accepted in enumerate(pattern):
                found[index, position] += weight
                position = position + 1 if accepted and position + 1 < k else 0
        assert np.allclose(block_positions(kept, k), found)


def test_an_interval_has_no_width_where_texts_are_alike_and_has_one_where_they_differ() -> None:
    alike, apart = (Blocks.of(each, 4).tokens_per_call for each in (_texts(0.5, 0.5), _texts(0.2, 0.9)))
    assert np.ptp(alike) == pytest.approx(0)
    assert np.ptp(apart) > 0.5


def test_the_break_even_share_is_where_the_best_draft_length_is_as_fast_as_the_verifier_alone() -> None:
    share = COSTS.break_even()
    assert share is not None
    assert max(expected_tokens(share, k) / COSTS.of(k) for k in LENGTHS) == pytest.approx(1)
    assert COSTS.of(3) == pytest.approx((1.35 + 1.8) / 2)
    assert Costs({1: 2.0, 8: 9.0}, draft=1.0).break_even() is None
