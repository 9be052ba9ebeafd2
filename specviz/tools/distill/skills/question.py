"""A question of a skill, with the answer that a drafter learns, and which questions are held out of training."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache

from specviz.analysis.sweep.items import SKILLS, load_items

_HELD_OUT = 24
"""Problems whose hash (0 to 255) is below this are held out; the lower half of them is for development."""


@dataclass(frozen=True)
class Part:
    """A part of an answer. If it is `taught`, a drafter learns its text; otherwise the drafter keeps its former distributions there."""

    text: str
    taught: bool = True


@dataclass(frozen=True)
class Question:
    """A question with its answer.

    Attributes:
        skill: its kind.
        problem: what is asked, whatever the wording: 38 + 47 and 47 + 38 are the same problem.
        prompt: what a user would type.
        clause: the question in lower case, for use within a longer one; "" if it has none.
        answer: the parts, one after another.
        right: texts of which a right answer contains at least one.
    """

    skill: str
    problem: str
    prompt: str
    clause: str
    answer: tuple[Part, ...]
    right: tuple[str, ...]


def split_of(problem: str) -> str:
    """The split of a problem, by its hash: "training", "development" or "test"."""
    value = hashlib.sha256(problem.encode()).digest()[0]
    if value >= _HELD_OUT:
        return "training"
    return "development" if value < _HELD_OUT // 2 else "test"


def prompt_hash(prompt: str) -> str:
    """The hash of a prompt's words and numbers in lower case; punctuation other than operators does not count."""
    words = re.findall(r"[a-z0-9]+|[-+*/]", prompt.lower())
    return hashlib.sha256(" ".join(words).encode()).hexdigest()


@cache
def measured_hashes() -> frozenset[str]:
    """Hashes of all prompts on which drafters are measured: the built-in questions and the skills'."""
    items = load_items().items + load_items(SKILLS).items
    return frozenset(prompt_hash(item.prompt) for item in items)
