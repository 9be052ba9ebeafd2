"""Helpers for sentences."""

from __future__ import annotations

from collections.abc import Sequence


def joined(words: Sequence[str]) -> str:
    """The words with commas between them, and “and” before the last one."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
