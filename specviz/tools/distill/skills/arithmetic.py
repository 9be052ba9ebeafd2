"""Sums, differences and products of small numbers, in several wordings and in short stories."""

from __future__ import annotations

import random

from specviz.tools.distill.skills.question import Part, Question

SKILLS = ("sum", "difference", "product")

Wording = tuple[str, str, str]
"""A prompt, an answer, and a clause ("" for none), with the slots {a}, {b}, {c}, {name}, {things}."""

_SIGNS = {"sum": "+", "difference": "-", "product": "*"}
_WORDS = {"sum": "plus", "difference": "minus", "product": "times"}
_NOUNS = {"sum": "sum", "difference": "difference", "product": "product"}
_COMMON: tuple[Wording, ...] = (
    (
        "What is the result of {a} {sign} {b}? Answer with a number.",
        "The result of {a} {sign} {b} is {c}.",
        "what is the result of {a} {sign} {b}",
    ),
    ("What is {a} {sign} {b}?", "{a} {sign} {b} = {c}", "what is {a} {sign} {b}"),
    ("What is {a} {word} {b}?", "{a} {word} {b} is {c}.", "what is {a} {word} {b}"),
    ("Calculate {a} {sign} {b}.", "{a} {sign} {b} = {c}", ""),
    (
        "What is the {noun} of {a} and {b}? Answer with a number.",
        "The {noun} of {a} and {b} is {c}.",
        "what is the {noun} of {a} and {b}",
    ),
    ("How much is {a} {sign} {b}?", "{a} {sign} {b} is {c}.", "how much is {a} {sign} {b}"),
)
_STORIES: dict[str, tuple[Wording, ...]] = {
    "sum": (
        (
            "{name} has {a} {things} and buys {b} more. How many {things} does {name} have? Answer with a number.",
            "{name} has {c} {things}.",
            "",
        ),
        (
            "There are {a} {things} on a table and {b} in a box. How many {things} are there? Answer with a number.",
            "There are {c} {things}.",
            "",
        ),
    ),
    "difference": (
        (
            "{name} has {a} {things} and gives away {b}. How many {things} are left? Answer with a number.",
            "{name} has {c} {things} left.",
            "",
        ),
        (
            "A shop has {a} {things} and sells {b}. How many {things} are left? Answer with a number.",
            "There are {c} {things} left.",
            "",
        ),
    ),
    "product": (
        (
            "A box holds {a} {things}. How many {things} are in {b} boxes? Answer with a number.",
            "There are {c} {things} in {b} boxes.",
            "",
        ),
        (
            "One ticket costs {a} dollars. How much do {b} tickets cost? Answer with a number.",
            "{b} tickets cost {c} dollars.",
            "",
        ),
    ),
}
_NAMES = ("Anna", "Tom", "Ben", "Emma", "Jack", "Sarah", "David", "Alex")
_THINGS = ("apples", "books", "coins", "cookies", "eggs", "cards", "flowers", "balls")
_STORY_SHARE = 0.3


def draw_question(draw: random.Random, skill: str) -> Question:
    """A question of one of `SKILLS`."""
    if skill == "product":
        a, b = (draw.randint(11, 99), draw.randint(2, 9)) if draw.random() < 0.8 else _two(draw, 2, 12)
        c, problem = a * b, f"{min(a, b)} * {max(a, b)}"
    elif skill == "sum":
        a, b = _two(draw, 10, 99) if draw.random() < 0.85 else (draw.randint(10, 99), draw.randint(2, 9))
        c, problem = a + b, f"{min(a, b)} + {max(a, b)}"
    else:
        b, a = sorted(
            _two(draw, 10, 99) if draw.random() < 0.85 else (draw.randint(12, 99), draw.randint(2, 9))
        )
        c, problem = a - b, f"{a} - {b}"
    is_story = draw.random() < _STORY_SHARE and c > 1
    wording = draw.choice(_STORIES[skill] if is_story else _COMMON)
    slots = {
        "a": a,
        "b": b,
        "c": c,
        "sign": _SIGNS[skill],
        "word": _WORDS[skill],
        "noun": _NOUNS[skill],
        "name": draw.choice(_NAMES),
        "things": draw.choice(_THINGS),
    }
    prompt, answer, clause = (text.format(**slots) for text in wording)
    return Question(skill, problem, prompt, clause, (Part(answer),), (str(c),))


def _two(draw: random.Random, low: int, high: int) -> tuple[int, int]:
    return draw.randint(low, high), draw.randint(low, high)
