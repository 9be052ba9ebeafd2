"""When a drafter that draws in one go is to stop. Numbers, without torch: knows nothing of how they are found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Stopping:
    """When one more draft token of a slot does not pay.

    Attributes:
        chooses: whether that is asked of each slot [D].
        needed: how likely all draft tokens so far must be accepted for another one to be drawn, after 1, 2, … of them.
        accepted: how often draft tokens were accepted, by classes of confidence from 0 to 1: of each slot that is asked about.
        needed_together: by how much the likelihoods of all that go on must exceed `needed`, in sum, for one more pass, where nobody goes on
            who is not asked.
    """

    chooses: Sequence[bool]
    needed: Sequence[float]
    accepted: Sequence[Sequence[float]]
    needed_together: float = 0.0
