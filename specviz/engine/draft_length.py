"""The draft length K of a round where a request leaves it to the engine ("auto").

A round of draft length K takes K drafter passes and one verifier pass over K tokens a sequence; of a sequence it emits 1 + a + … + a^(K−1)
tokens, where a is the acceptance rate. K maximises tokens per second by the pair's pass times, at one assumed acceptance rate. On a CPU,
where reading a confidence is no wait, a draft also ends after a draft token of low confidence, as with transformers'
`assistant_confidence_threshold`. K never changes a text, only its speed (law 2). Knows no model and no token.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from specviz.schema.settings import MAX_DRAFT_LENGTH

if TYPE_CHECKING:
    from specviz.runtime.pass_times import PassTimes

ACCEPTANCE = 0.75
"""The acceptance rate that K is chosen for."""
THRESHOLD = 0.3
"""A draft token of lower confidence is the last of its draft."""
UNVERIFIED = 8
"""The draft length where no verifier runs: long enough for a round's own cost not to matter."""


@lru_cache
def best_draft_length(times: PassTimes, sequences: int) -> int:
    """The K at which so many concurrent sequences emit the most tokens per second.

    At least 2 for a single sequence, which gains nothing from one draft token a round: times that were measured on a busy machine may say 1.
    """

    def speed(length: int) -> float:
        seconds = length * times.draft(sequences) + times.verify(sequences * length)
        return sequences * expected_tokens(ACCEPTANCE, length) / seconds

    return max(range(2 if sequences == 1 else 1, MAX_DRAFT_LENGTH + 1), key=speed)


def expected_tokens(acceptance: float, draft_length: int) -> float:
    """Tokens that a round of draft length K emits at a constant acceptance rate: 1 + a + … + a^(K−1)."""
    return sum(acceptance**step for step in range(draft_length))
