"""Whether a rule that reads well also makes sense: tried on a few pairs of small distributions, before any model runs.

Knows no model: a division by zero, or what is no number, is found where it is that for every pair and every lenience tried.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from specviz.core.distributions import Distributions
from specviz.core.expression.syntax import Node
from specviz.core.expression.tensors import compile_number
from specviz.errors import RuleError

_LENIENCES = (-1.0, 0.0, 0.137, 0.5, 1.0, 2.0)
_SENTENCES = {
    "/": "This divides by zero, whatever the models say.",
    "log": "There is no logarithm of this: it is negative, whatever the models say.",
    "sqrt": "There is no square root of this: it is negative, whatever the models say.",
}
_NO_NUMBER = "This is no number, whatever the models say."


def probe(rule: Node, text: str) -> None:
    """Raises RuleError at the first part of a rule that is no number, or divides by zero, in all that is tried."""
    for node in rule.walk():
        if node.is_truth or not node.parts:
            continue
        by_zero = node.name == "/" and not _values(node.parts[1]).any()
        if by_zero or bool(_values(node).isnan().all()):
            raise RuleError(_SENTENCES.get(node.name, _NO_NUMBER), text, node.position)


def _values(node: Node) -> Tensor:
    b, lenience = _tried()
    return compile_number(node)(b, lenience, None)


@cache
def _tried() -> tuple[Distributions, Tensor]:
    """Eight pairs of distributions at each lenience: [leniences, 8, V], and the leniences [leniences, 8, 1]."""
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(2, 8, 16, generator=generator, dtype=torch.float64)
    lenience = torch.tensor(_LENIENCES, dtype=torch.float64)[:, None, None].expand(-1, 8, 1)
    drafter, verifier = logits[:, None].expand(-1, len(_LENIENCES), -1, -1)
    return Distributions(drafter, verifier, 0.7), lenience
