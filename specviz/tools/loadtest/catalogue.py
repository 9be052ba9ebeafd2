"""What the visitors ask for: distinct requests, the same ones for one seed. Knows no server."""

from __future__ import annotations

import random

from specviz.core.methods import METHODS
from specviz.schema.settings import Request

_PROMPTS = (
    "Why is the sky blue? Explain it to a curious child.",
    "Write a short story about a lighthouse keeper who finds a message in a bottle.",
    "Write a Python function that checks whether a word is a palindrome.",
    "A train travels 60 miles in 1.5 hours. What is its average speed? Show your steps.",
    "Give three reasons to learn a second language.",
    "What is the difference between weather and climate?",
    "Describe how bread is made, from the flour to the oven.",
    "List five animals that sleep in winter, with a sentence about each.",
)
_TOKENS = (16, 32, 64, 128)
_TEMPERATURES = (0.7, 1.0, 0.0)


def catalogue(count: int, seed: int) -> list[Request]:
    """`count` distinct requests: all methods and prompts in turn, with coins of their own."""
    draw = random.Random(seed)
    found = []
    for at in range(count):
        method = list(METHODS.values())[at % len(METHODS)]
        low, high = method.offered_range if method.has_lenience else (0.0, 0.0)
        found.append(
            Request(
                prompt=_PROMPTS[at % len(_PROMPTS)],
                method=method.name,
                lenience=round(low + draw.choice((0.25, 0.5, 0.75)) * (high - low), 4),
                temperature=_TEMPERATURES[at % len(_TEMPERATURES)],
                seed=1000 * at + draw.randrange(1000),
                max_new_tokens=draw.choice(_TOKENS),
            )
        )
    return found
