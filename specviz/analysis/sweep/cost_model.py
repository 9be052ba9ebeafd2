"""What a token costs by arithmetic: from the acceptance rate, the draft length and what the two models' passes take.

In units of a verifier pass over one token, a round of K proposals takes K − 1 drafter passes of c each, one verification of
v(K) = 1 + s·(K − 1), and one drafter pass more where all proposals so far were accepted. With acceptance a, the same at every
place, that has the chance a^(K−1), and the round emits 1 + a + … + a^(K−1) tokens. Knows no model and no measurement.
"""

from __future__ import annotations

from dataclasses import dataclass

from specviz.core.methods import get_method
from specviz.engine.draft_length import expected_passes, expected_tokens


@dataclass(frozen=True)
class CostModel:
    """The costs of a pair on a machine, in units of one verifier pass over one token.

    Attributes:
        drafter: c, one drafter pass.
        per_token: s, what one more token adds to a verification.
        draft_length: K.
    """

    drafter: float
    per_token: float
    draft_length: int

    def relative_latency(self, method: str, acceptance_rate: float) -> float:
        """Time a token ÷ verifier_only's; `acceptance_rate` in [0, 1] counts for methods with both models only."""
        rules = get_method(method)
        if not rules.drafts:
            return 1.0
        if not rules.verifies:
            return self.drafter
        k = self.draft_length
        drafting = expected_passes(acceptance_rate, k) * self.drafter
        return (drafting + 1 + self.per_token * (k - 1)) / expected_tokens(acceptance_rate, k)
