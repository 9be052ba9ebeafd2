"""What the page offers: the ranges of its controls, as numbers. Knows no control."""

from __future__ import annotations

from dataclasses import dataclass, replace

from specviz.schema.settings import AUTO, MAX_DRAFT_LENGTH

MAX_SEED = 2**31 - 1
MAX_PROMPT = 4000
"""Characters of a prompt that a link may carry."""
PANES = (2, 3, 4)
"""How many runs may stand side by side."""
DRAFT_LENGTHS = (AUTO, *range(1, MAX_DRAFT_LENGTH + 1))
"""What a draft length may be; the first one is what a control begins with."""


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, whole ones only where `whole`; `start` is what a control begins with."""

    low: float
    high: float
    start: float
    step: float = 1
    whole: bool = False

    def holds(self, value: float) -> bool:
        """Whether `value` lies within."""
        return self.low <= value <= self.high

    def __str__(self) -> str:
        return f"a {'whole number' if self.whole else 'number'} from {self.low:g} to {self.high:.10g}"


RANGES = {
    "temperature": Range(0, 2, 0.7, 0.05),
    "top_k": Range(0, 1_000_000, 0, whole=True),
    "top_p": Range(0.05, 1, 1, 0.05),
    "max_new_tokens": Range(8, 512, 128, 8, whole=True),
    "seed": Range(0, MAX_SEED, 0, whole=True),
}
"""By the names of a `Request`."""


def ranges(most_tokens: int) -> dict[str, Range]:
    """`RANGES` where a text may have so many tokens."""
    tokens = RANGES["max_new_tokens"]
    low, start = min(tokens.low, most_tokens), min(tokens.start, most_tokens)
    return RANGES | {"max_new_tokens": replace(tokens, low=low, high=most_tokens, start=start)}
