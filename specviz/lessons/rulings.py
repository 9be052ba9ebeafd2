"""What deferral rules say at one place of a recorded run. Knows traces and rules; knows no lesson. The only part of lessons that computes with
torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from specviz.core.distributions import Distributions
from specviz.core.methods import METHODS
from specviz.core.target import Target
from specviz.lessons.places import examined
from specviz.schema.trace import Run, Token

_SPREAD = 4096
"""Tokens that what a run did not record is spread over."""


def rulings_at(token: Token, run: Run, methods: Mapping[str, float]) -> list[dict[str, Any]]:
    """Both sides of each method's test at an examined place of a run at temperature 1.

    The run's own are those that it recorded. For others the distributions are put together from what it recorded: the most
    probable tokens, and the rest spread evenly, which no rule but OPT's can tell from what it was.
    """
    draft = examined(token)
    known: list[dict[int, float]] = [{}, {}]
    for side, name in zip(known, ("q", "p"), strict=True):
        side |= {one.id: one.probability for one in getattr(token.top, name)}
        side[draft.id] = getattr(draft, name)
    ids = sorted({*known[0], *known[1]}, key=lambda id: id != draft.id)  # the draft token first
    logits = []
    for side in known:
        rest = max(1e-9, 1 - sum(side.values())) / (_SPREAD + len(ids) - len(side))
        masses = [side.get(id, rest) for id in ids] + [rest] * _SPREAD
        logits.append(torch.tensor(masses, dtype=torch.float64).clamp_min(1e-30).log())
    found = []
    for name, lenience in methods.items():
        if (name, lenience) == (run.method, run.lenience) and token.rule:
            sides = (token.rule.score, token.rule.threshold)
        else:
            target = Target.of(METHODS[name], Distributions(*logits, 1.0), lenience)
            assert target.score is not None
            assert target.threshold is not None
            sides = (float(target.score[0]), float(target.threshold[0]))
        found.append(
            {
                "method": name,
                "lenience": lenience,
                "score": sides[0],
                "threshold": sides[1],
                "trusted": sides[0] >= sides[1],
                "score_label": METHODS[name].score_label,
                "threshold_label": METHODS[name].threshold_label,
            }
        )
    return found
