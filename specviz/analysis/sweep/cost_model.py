"""What a token costs by arithmetic: from the acceptance rate, the draft length and the costs of both models' passes.

In units of a verifier pass over one token, a round of draft length K takes c for each draft token that is counted and one verification
of v(K) = 1 + s·(K − 1). The K-th draft token counts only where it is examined, since all others were accepted. With acceptance rate a, the
same at every position, that has probability a^(K−1), and the round emits 1 + a + … + a^(K−1) tokens. Knows no model.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from specviz.analysis.statistics import rounded
from specviz.analysis.sweep.grid import Setting
from specviz.analysis.sweep.sample import Timing
from specviz.core.methods import get_method
from specviz.engine.draft_length import expected_tokens


@dataclass(frozen=True)
class CostModel:
    """The costs of a pair on a machine, in units of one verifier pass over one token.

    Attributes:
        drafter: c, drafting per draft token that is counted.
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
        drafting = (k - 1 + acceptance_rate ** (k - 1)) * self.drafter
        return (drafting + 1 + self.per_token * (k - 1)) / expected_tokens(acceptance_rate, k)


def fit_cost_model(
    settings: Sequence[Setting], timings: Sequence[Timing], draft_length: int
) -> CostModel | None:
    """The costs of the pair's passes on the machine that timed these texts; None if too little was timed.

    Every text of both models is compared with verifier_only's of the same item, timed at the same temperature:
    its seconds a draft token ÷ the verifier's seconds a token are c; the rest of its rounds, ÷ the same, is
    v(K) = 1 + s·(K − 1). The medians over all texts and temperatures are taken (the passes are the same at every
    temperature), so that one text during which the machine was slow does not count for more.
    """
    alone: dict[tuple[int, float], list[float]] = defaultdict(list)
    for one in timings:
        setting = settings[one.setting]
        if setting.method == "verifier_only" and one.tokens and one.seconds > 0:
            alone[one.index, setting.temperature].append(one.seconds / one.tokens)
    drafting, growth = [], []
    for one in timings:
        setting = settings[one.setting]
        method = get_method(setting.method)
        baseline = alone.get((one.index, setting.temperature))
        if not (method.drafts and method.verifies and baseline and one.drafted and one.rounds):
            continue
        seconds_a_token = median(baseline)
        drafting.append(one.drafter_seconds / one.drafted / seconds_a_token)
        if draft_length > 1:
            verification = (one.seconds - one.drafter_seconds) / one.rounds / seconds_a_token
            growth.append((verification - 1) / (draft_length - 1))
    if not drafting:
        return None
    per_token = max(0.0, median(growth)) if growth else 0.0
    return CostModel(rounded(median(drafting)), rounded(per_token), draft_length)
