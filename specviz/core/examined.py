"""Draft tokens that a target decided, where they were examined, and what their positions' distributions hold most of.

Pure functions on tensors, beside `target`. Several targets' tokens go through one compiled loop, by the addresses of rows that nobody copies.
Knows no model, no trace and no page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from specviz.core import kernels
from specviz.core.distributions import Distributions, Places, some_of
from specviz.core.methods import FLOOR
from specviz.core.sampling import Number, leading
from specviz.core.target import Target, Values


@dataclass(frozen=True)
class Examined:
    """The examined draft tokens of a target, n of all its positions.

    Attributes:
        whole: the target, at all positions [B, K].
        all_tokens, all_coins: draft tokens and their coins there, [B, K].
        places: of examined ones, of all positions, flattened.
        found: the target at these positions, where it was selected before.
    """

    whole: Target
    all_tokens: Tensor
    all_coins: Tensor
    places: Places
    found: Target | None = None

    @cached_property
    def distributions(self) -> Distributions:
        """Both models' there."""
        return self.found.distributions if self.found else self.whole.distributions.select(self.places)

    @cached_property
    def target(self) -> Target:
        """The target there."""
        return self.found or self.whole.select(self.places, self.distributions)

    @property
    def tokens(self) -> Tensor:
        """The draft tokens, [n]."""
        return self.all_tokens.flatten()[self.places]

    @property
    def coins(self) -> Tensor:
        """Their coins, [n]."""
        return self.all_coins.flatten()[self.places]

    def __len__(self) -> int:
        if isinstance(self.places, slice):
            return int(self.places.stop - self.places.start)
        return len(self.places)

    def numbers(self, setting: Number) -> np.ndarray:
        """A setting, or what broadcasts to all positions [B, K], as one number for each of these: [n]. On a CPU."""
        values = setting.numpy() if isinstance(setting, Tensor) else setting
        return some_of(np.broadcast_to(values, self.all_tokens.shape).reshape(-1), self.places)

    def pi_rows(self) -> kernels.PiRows:
        """For compiled loops: pi, or what it follows from."""
        whole, lead = self.whole, tuple(self.all_tokens.shape)
        if whole.method.weigh is not None:
            return kernels.PiRows.known(self.target.pi())
        return kernels.PiRows(*(some_of(each, self.places) for each in whole.pi_rows(lead)))


def rows(parts: Sequence[Examined], name: str) -> np.ndarray:
    """Addresses of the rows of q, p, q1 or p1 at all parts' positions, one part after the other."""
    return np.concatenate([part.distributions.rows(name) for part in parts])


def split(values: np.ndarray, parts: Sequence[Examined], axis: int = 0) -> list[np.ndarray]:
    """What was found at all parts' positions, one part after the other, part by part."""
    return np.split(values, np.cumsum([len(part) for part in parts])[:-1], axis)


def leading_of_three(parts: Sequence[Examined], count: int) -> list[tuple[Values, Values]]:
    """The `count` most probable tokens of q, p and pi at each part's positions: probabilities [3, n, count] and ids."""
    if not parts:
        return []
    q = parts[0].whole.distributions.q
    size = q.shape[-1]
    if not kernels.serve(q):
        return [_leading_of_three(part, min(count, size)) for part in parts]
    pi = kernels.PiRows(*map(np.concatenate, zip(*(part.pi_rows() for part in parts), strict=True)))
    found = kernels.leading_of_three(rows(parts, "q"), rows(parts, "p"), pi, size, min(count, size), FLOOR)
    most, tokens = (split(values, parts, axis=1) for values in found)
    return list(zip(most, tokens, strict=True))


def _leading_of_three(part: Examined, count: int) -> tuple[Tensor, Tensor]:
    both = part.distributions
    each = [leading(values, count) for values in (both.q, both.p, part.target.pi())]
    most, tokens = map(torch.stack, zip(*each, strict=True))
    return most, tokens
