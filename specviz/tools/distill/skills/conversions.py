"""Conversions of units: weeks to days, hours to minutes, dollars to cents and so on."""

from __future__ import annotations

import random

from specviz.tools.distill.skills.question import Part, Question

SKILLS = ("conversion",)

_UNITS = (
    ("weeks", "days", 7, 60),
    ("hours", "minutes", 60, 40),
    ("minutes", "seconds", 60, 40),
    ("years", "months", 12, 30),
    ("feet", "inches", 12, 30),
    ("dollars", "cents", 100, 99),
    ("centuries", "years", 100, 60),
    ("kilometers", "meters", 1000, 60),
)
"""A unit, a smaller unit, how many of the smaller make one of the larger, and the largest number to convert."""
_WORDS = ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
_WORDINGS = (
    ("How many {small} are in {n} {large}? Answer with a number.", "There are {c} {small} in {n} {large}."),
    ("How many {small} are in {n} {large}?", "There are {c} {small} in {n} {large}."),
    ("How many {small} are {n} {large}?", "{N} {large} are {c} {small}."),
    ("Convert {n} {large} to {small}.", "{n} {large} = {c} {small}"),
)


def draw_question(draw: random.Random, skill: str) -> Question:
    """A question of one of `SKILLS`."""
    large, small, factor, most = draw.choice(_UNITS)
    count = draw.randint(2, 12) if draw.random() < 0.3 else draw.randint(2, most)
    n = _WORDS[count - 2] if count <= 12 and draw.random() < 0.5 else str(count)
    prompt, answer = draw.choice(_WORDINGS)
    slots = {"large": large, "small": small, "n": n, "N": n.capitalize(), "c": count * factor}
    prompt, answer = prompt.format(**slots), answer.format(**slots)
    clause = prompt.removesuffix("?")
    clause = clause[0].lower() + clause[1:] if clause != prompt else ""
    return Question(skill, f"{count} {large}", prompt, clause, (Part(answer),), (str(count * factor),))
