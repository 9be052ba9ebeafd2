"""The prefix cache of one model: keys and values of recent prefixes. A shared prefix (a chat template's, or a forked text's) is
prefilled once.

On the CPU a restored position has the bits that prefilling it again would give (batch invariance).
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

from specviz.runtime.runner import KeyValues

TOKENS = 1024
"""Most tokens cached, over all prefixes: a token of the embedded verifier takes 46 KB."""
LONGEST = 256
"""Most tokens of a cached prefix."""
SHORTEST = 16
"""Fewest tokens of a cached prefix: a shorter one is prefilled faster than restored."""


class PrefixCache:
    """Prefixes that one model has read, the latest first."""

    def __init__(self) -> None:
        self._prefixes: list[tuple[list[int], KeyValues]] = []

    def find(self, ids: Sequence[int]) -> tuple[KeyValues | None, int]:
        """Keys and values of the cached prefix that shares the most first ids with `ids`, and the number of shared ids.

        Returns None, 0 if fewer than `SHORTEST` are shared. Keys and values may hold more positions than are shared.
        """
        found = [(common_length(prefix, ids), saved) for prefix, saved in self._prefixes]
        length, saved = max(found, key=itemgetter(0), default=(0, None))
        return (saved, length) if length >= SHORTEST else (None, 0)

    def wants(self, ids: Sequence[int]) -> bool:
        """Whether the first `LONGEST` ids should be cached: they are at least `SHORTEST` tokens, and not all are cached."""
        count = min(len(ids), LONGEST)
        return count >= SHORTEST and self.find(ids)[1] < count

    def keep(self, ids: Sequence[int], saved: KeyValues) -> None:
        """Add `ids` to the cache, in place of cached prefixes of `ids`; the oldest prefixes are dropped when the cache is full."""
        others = [each for each in self._prefixes if common_length(each[0], ids) < len(each[0])]
        self._prefixes = [(list(ids), saved), *others]
        while len(self._prefixes) > 1 and sum(len(prefix) for prefix, _ in self._prefixes) > TOKENS:
            self._prefixes.pop()

    def clear(self) -> bool:
        """Free all prefixes; returns True if there were any."""
        had_prefixes = bool(self._prefixes)
        self._prefixes.clear()
        return had_prefixes


def common_length(one: Sequence[int], other: Sequence[int]) -> int:
    """Number of first ids that two lists have in common."""
    differences = (index for index, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differences, min(len(one), len(other)))
