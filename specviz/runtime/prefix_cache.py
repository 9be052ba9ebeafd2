"""What both models have read lately: prompts that begin alike, as all of a chat template do, are read once.

Holds keys and values of a few beginnings, and knows when two begin alike; knows no request and no text. On the CPU a token
read once has the very bits it would have again (law 3 of README).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from specviz.runtime.kv_cache import Saved

MOST = 8
"""Beginnings kept, for each model."""
LONGEST = 256
"""Tokens kept of each."""
SHORTEST = 16
"""Fewer tokens are sooner read again."""


@dataclass(frozen=True)
class Prefix:
    """The beginning of a prompt, read."""

    ids: list[int]
    states: Saved


class Prefixes:
    """Beginnings that one model has read, the latest first."""

    def __init__(self) -> None:
        self._kept: deque[Prefix] = deque(maxlen=MOST)

    def find(self, ids: Sequence[int]) -> tuple[Prefix | None, int]:
        """What has most of the beginning of `ids`, and how many tokens that is; None and 0 where it is hardly any."""
        best = max(self._kept, key=lambda prefix: alike(prefix.ids, ids), default=None)
        length = alike(best.ids, ids) if best else 0
        return (best, length) if length >= SHORTEST else (None, 0)

    def wants(self, ids: Sequence[int]) -> bool:
        """Whether keeping the beginning of `ids` would add anything."""
        count = min(len(ids), LONGEST)
        return count >= SHORTEST and self.find(ids)[1] < count

    def keep(self, ids: Sequence[int], states: Saved) -> None:
        """Keep a beginning, in place of the oldest."""
        self._kept.appendleft(Prefix(list(ids), states))


def alike(one: Sequence[int], other: Sequence[int]) -> int:
    """How many ids two sequences begin with alike."""
    parts = (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(parts, min(len(one), len(other)))
