"""The four bits in which a drafter's matrices may be stored, for a student that learns to do with them.

Knows numbers; knows no model and no file format.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specviz.models.checkpoint import BLOCK


def round_to_four_bits(weight: Tensor) -> Tensor:
    """What is left of `weight` [..., n·32] in Q4_1: of each block sixteen levels, from its least number to its greatest."""
    blocks = weight.unflatten(-1, (-1, BLOCK))
    least, greatest = torch.aminmax(blocks, dim=-1, keepdim=True)
    scale = ((greatest - least) / 15).half().float()
    minimum = least.half().float()
    levels = ((blocks - minimum) / scale.clamp_min(1e-12)).round().clamp(0, 15)
    return (levels * scale + minimum).flatten(-2).to(weight.dtype)
