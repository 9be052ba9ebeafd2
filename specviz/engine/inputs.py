"""Per-sequence values as tensors on a device: uniforms, sampling parameters, penalties and banned tokens.

Each tensor has a row per sequence, in the order given. Knows sequences; runs no model.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from specviz.core.sampling import Number, Penalty, SamplingParameters
from specviz.engine.sequence import Sequence


def on(device: torch.device, values: Any) -> Tensor:
    """Numbers as a tensor on a device, for which the host does not wait."""
    found = torch.as_tensor(values)
    return found if device.type == "cpu" else found.to(device, non_blocking=True)


def uniforms(device: torch.device, sequences: list[Sequence], kind: int, count: int) -> Tensor:
    """Uniforms of one kind at the next `count` positions, float64 [B, count]."""
    return on(device, np.stack([each.next_uniforms(kind, count) for each in sequences]))


def rows(device: torch.device, indices: list[int]) -> Tensor | slice:
    """Indices of rows of a tensor; a slice if they are consecutive, since it selects a view."""
    first = indices[0]
    if indices == list(range(first, first + len(indices))):
        return slice(first, first + len(indices))
    return on(device, indices)


def shared(device: torch.device, values: list[float]) -> Number:
    """One number if all sequences agree, which is faster; else one for each, float64 [B, 1]."""
    return values[0] if len(set(values)) == 1 else on(device, np.array(values, np.float64)[:, None])


def sampling(device: torch.device, parameters: list[SamplingParameters]) -> SamplingParameters:
    """Sampling parameters of all sequences, each a number or [B, 1]."""
    return SamplingParameters(*(shared(device, list(column)) for column in zip(*parameters, strict=True)))


def penalty(device: torch.device, sequences: list[Sequence]) -> Penalty | None:
    """The sequences' repetition penalties; None if all are 1."""
    strengths = [each.repetition_penalty for each in sequences]
    if all(strength == 1 for strength in strengths):
        return None
    seen = [
        list(set(each.ids) if strength != 1 else each.ids[-1:])
        for each, strength in zip(sequences, strengths, strict=True)
    ]
    longest = max(map(len, seen))
    padded = [ids + ids[:1] * (longest - len(ids)) for ids in seen]
    return Penalty(on(device, np.array(strengths, np.float64)[:, None]), on(device, padded))


def banned(device: torch.device, sequences: list[Sequence]) -> Tensor | None:
    """Row and token id of each banned token, int64 [n, 2]; None without any."""
    pairs = [(row, token) for row, each in enumerate(sequences) for token in each.banned]
    return on(device, pairs) if pairs else None
