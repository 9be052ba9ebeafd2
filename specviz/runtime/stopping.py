"""When a drafter that draws in one go is to stop. Numbers, without torch: knows nothing of how they are found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Stopping:
    """When one more draft token does not pay: by how often those of each slot [D] of like confidence were accepted.

    Attributes:
        length: draft tokens of each slot, where that is fixed all the same; else 0.
        pass_seconds: of one more pass of the drafter.
        speed: tokens a second of rounds on average, which a draft token has to reach.
        remaining: seconds of all else in a round of draft length 1, 2, … up to the largest.
        accepted: how often, by classes of confidence from 0 to 1, [D, classes].
    """

    length: int
    pass_seconds: float = 0.0
    speed: float = 0.0
    remaining: Sequence[float] = ()
    accepted: Sequence[Sequence[float]] = ()
