"""The draft length K that the engine chooses for a request with "auto". K changes the speed of a text, never the text (law 2).

A round takes K drafter passes and one verifier pass over K tokens per sequence. The chosen K maximises the tokens per second, estimated
from the pair's pass times and one assumed acceptance rate.
"""

from __future__ import annotations

from functools import lru_cache

from specviz.runtime.pass_times import PassTimes
from specviz.schema.settings import MAX_DRAFT_LENGTH

ACCEPTANCE = 0.75
"""The acceptance rate assumed when the engine chooses K."""


@lru_cache
def best_draft_length(times: PassTimes, sequences: int) -> int:
    """The K at which `sequences` concurrent sequences emit the most tokens per second.

    At least 2 for a single sequence, which gains nothing from one draft token per round, even if inexact pass times favour 1.
    """

    def speed(length: int) -> float:
        seconds = length * times.draft(sequences) + times.verify(sequences * length)
        return sequences * expected_tokens(ACCEPTANCE, length) / seconds

    return max(range(2 if sequences == 1 else 1, MAX_DRAFT_LENGTH + 1), key=speed)


def expected_tokens(acceptance: float, draft_length: int) -> float:
    """Tokens that a round of draft length K emits at a constant acceptance rate a: 1 + a + … + a^(K−1)."""
    return sum(acceptance**step for step in range(draft_length))
