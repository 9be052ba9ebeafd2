"""Predicts tokens per call and speed-up of a pair from the two models' agreement along the verifier's texts and the cost of their passes.

Lossless decoding samples from the verifier's distribution, so the verifier's texts stand for the texts of lossless decoding. Given such
a text, an examined token x was accepted with probability min(1, q(x)/p(x)), independently of the other tokens. Over x ~ p, the mean of
this probability is 1 − TV(q, p). One reading of the text by both models therefore gives the expected blocks for every draft length K.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from specviz.analysis.bisection import least
from specviz.analysis.sweep.estimates import Floats, divided, resamples
from specviz.engine.draft_length import expected_tokens

LONGEST = 8
"""The longest draft length that is predicted."""
COSTED = (1, 2, 4, LONGEST)
"""Draft lengths whose rounds are timed; the cost of a round is interpolated for other lengths."""


@dataclass(frozen=True)
class Agreement:
    """How far two models agree along a text of the verifier.

    Attributes:
        kept: probability that each token was accepted, given the text: min(1, q/p) of the token.
        overlap: 1 − TV(q, p) at each token.
    """

    kept: Sequence[float]
    overlap: Sequence[float]


def block_positions(kept: Sequence[float], draft_length: int) -> Floats:
    """Probability [tokens, K] that token t of a text is the k-th of its block. A block ends with a rejection or its K-th token."""
    found = np.zeros((len(kept), draft_length))
    now = np.eye(1, draft_length)[0]
    for index, share in enumerate(kept):
        found[index] = now
        goes_on = now[:-1] * share
        now = np.array([1 - goes_on.sum(), *goes_on])
    return found


@dataclass(frozen=True)
class Blocks:
    """Statistics [replicates, K] of the blocks of one draft length along some texts.

    Row 0 is over all texts; the others are resamples of texts, as in `specviz.analysis.sweep.estimates`.

    Attributes:
        reached: expected number of blocks that reach their k-th token.
        acceptance: acceptance rate a_k of the examined draft tokens at position k of a block; NaN if no token is examined there.
    """

    reached: Floats
    acceptance: Floats

    @staticmethod
    def of(texts: Sequence[Agreement], draft_length: int) -> Blocks:
        """The blocks of these texts."""
        reached, accepted = np.zeros((2, len(texts), draft_length))
        for index, text in enumerate(texts):
            positions = block_positions(text.kept, draft_length)
            reached[index], accepted[index] = positions.sum(axis=0), positions.T @ np.asarray(text.overlap)
        weights = resamples(len(texts))
        return Blocks(weights @ reached, divided(weights @ accepted, weights @ reached))

    @property
    def tokens_per_call(self) -> Floats:
        """Expected tokens per verifier call, [replicates]: 1 + a₁ + a₁a₂ + … + a₁…a_(K−1) if no text's end cuts a block.

        a_k is `acceptance` at k. There is no a_K, since there is no bonus token: the K-th draft token only decides who writes that token.
        """
        return divided(self.reached.sum(axis=1), self.reached[:, 0])


@dataclass(frozen=True)
class Costs:
    """What a pair's passes cost.

    Attributes:
        rounds: cost of a round, by timed draft length: its seconds divided by those of one token of the verifier alone.
        draft: cost of a draft token, in the same unit.
    """

    rounds: Mapping[int, float]
    draft: float

    def of(self, draft_length: int) -> float:
        """Cost of a round of this draft length, interpolated linearly between timed draft lengths."""
        known = sorted(self.rounds)
        return float(np.interp(draft_length, known, [self.rounds[each] for each in known]))

    def break_even(self) -> float | None:
        """The smallest constant acceptance rate at which some draft length is as fast as the verifier alone; None if even 1 is too low."""

        def best(acceptance: float) -> float:
            return max(expected_tokens(acceptance, k) / self.of(k) for k in range(1, LONGEST + 1))

        return least(lambda acceptance: best(acceptance) >= 1) if best(1.0) >= 1 else None


def leviathan_speed_up(acceptance: float, draft_length: int, draft: float) -> float:
    """Speed-up by Leviathan et al. (2023), theorem 3.8, at γ = K − 1: their bonus token makes up for the shorter draft.

    `draft` is the cost of a draft token. The formula assumes one acceptance rate for all positions, and verifier passes that cost the
    same for any number of tokens.
    """
    return expected_tokens(acceptance, draft_length) / ((draft_length - 1) * draft + 1)
