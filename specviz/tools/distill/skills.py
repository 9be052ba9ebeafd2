"""Questions with known answers, which teach a drafter skills that its verifier lacks. `assets/questions.json` has their wordings.

Skills are sums, differences and products, conversions of units, and the order and extremes of numbers. Questions also ask for facts, but
these are not taught: on their tokens a drafter keeps its former distributions.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from specviz.analysis.sweep import items
from specviz.resources import ASSETS

_SHARES = {
    "sum": 0.29,
    "difference": 0.29,
    "product": 0.13,
    "conversion": 0.12,
    "order": 0.05,
    "extreme": 0.02,
    "fact": 0.10,
}
"""Share of the questions for each skill; "fact" stands for questions for a fact alone."""
_MIXED_SHARE = 0.3
"""Among the skill questions with a `clause`, the share that also asks for a fact."""
_STORY_SHARE = 0.3
_NUMBERS = {
    "sum": (0.85, (10, 99, 10, 99), (10, 99, 2, 9)),
    "difference": (0.85, (10, 99, 10, 99), (12, 99, 2, 9)),
    "product": (0.8, (11, 99, 2, 9), (2, 12, 2, 12)),
}
"""By skill: a share of its questions, the ranges (low, high, low, high) of two numbers in these, and the ranges in the other questions."""
_HELD_OUT = 24
"""Problems whose hash (0 to 255) is below this are held out."""


class Question(NamedTuple):
    """A question with its answer.

    Attributes:
        problem: what is asked, regardless of the wording: 38 + 47 and 47 + 38 are the same problem.
        prompt: what a user would type.
        clause: the question in lower case, for use within a longer question; "" if there is no such form.
        answer: what a drafter learns to say.
        fact: the part of the answer that is not taught: on it a drafter keeps its former distributions.
    """

    problem: str
    prompt: str
    clause: str
    answer: str
    fact: str = ""


def training_examples(seed: int) -> Iterator[Question]:
    """Endless questions. None has a held-out problem or a prompt on which drafters are measured."""
    draw = random.Random(seed)
    while True:
        (skill,) = draw.choices(tuple(_SHARES), tuple(_SHARES.values()))
        question = draw_question(draw, skill)
        if question.clause and skill != "fact" and draw.random() < _MIXED_SHARE:
            question = with_fact(draw, question, draw_question(draw, "fact"))
        if normalised(question.prompt) not in measured_prompts():
            yield question


def draw_question(draw: random.Random, skill: str) -> Question:
    """A question of a skill (or "fact") whose problem is not held out. Facts are never held out."""
    make = {"conversion": _conversion, "order": _order, "extreme": _extreme, "fact": _fact}.get(skill)
    while True:
        question = make(draw) if make else _arithmetic(draw, skill)
        if skill == "fact" or not is_held_out(question.problem):
            return question


def is_held_out(problem: str) -> bool:
    """Whether a problem is held out from training, by its hash."""
    return hashlib.sha256(problem.encode()).digest()[0] < _HELD_OUT


def normalised(prompt: str) -> str:
    """A prompt's words, numbers and operators, in lower case."""
    return " ".join(re.findall(r"[a-z0-9]+|[-+*/]", prompt.lower()))


@cache
def measured_prompts() -> frozenset[str]:
    """All prompts on which drafters are measured, normalised: the built-in questions and the skills'."""
    measured = items.load_items().items + items.load_items(items.SKILLS).items
    return frozenset(normalised(item.prompt) for item in measured)


def with_fact(draw: random.Random, question: Question, fact: Question) -> Question:
    """One question that asks both questions, in random order; its answer has a line for each."""
    two = [question, fact]
    draw.shuffle(two)
    first, second = two
    clauses = {"First": _capital(first.clause), "second": second.clause, "Second": _capital(second.clause)}
    prompt = draw.choice(wordings()["mixed"]).format(**clauses)
    return Question(question.problem, prompt, "", f"{first.answer}\n{second.answer}", fact.answer)


def _arithmetic(draw: random.Random, skill: str) -> Question:
    said, (share, often, rarely) = wordings()["arithmetic"], _NUMBERS[skill]
    ranges = often if draw.random() < share else rarely
    a, b = draw.randint(*ranges[:2]), draw.randint(*ranges[2:])
    if skill == "difference":
        a, b = max(a, b), min(a, b)
    sign = said["signs"][skill]
    c = {"+": a + b, "-": a - b, "*": a * b}[sign]
    first, second = (a, b) if skill == "difference" else sorted((a, b))
    is_story = draw.random() < _STORY_SHARE and c > 1
    wording = draw.choice(said["stories"][skill] if is_story else said["common"])
    slots = {"a": a, "b": b, "c": c, "sign": sign, "word": said["words"][skill], "noun": skill}
    slots |= {"name": draw.choice(said["names"]), "things": draw.choice(said["things"])}
    prompt, answer, clause = (text.format(**slots) for text in wording)
    return Question(f"{first} {sign} {second}", prompt, clause, answer)


def _conversion(draw: random.Random) -> Question:
    said = wordings()["conversions"]
    large, small, factor, most = draw.choice(said["units"])
    count = draw.randint(2, 12) if draw.random() < 0.3 else draw.randint(2, most)
    n = said["words"][count - 2] if count <= 12 and draw.random() < 0.5 else str(count)
    slots = {"large": large, "small": small, "n": n, "N": n.capitalize(), "c": count * factor}
    prompt, answer = (text.format(**slots) for text in draw.choice(said["wordings"]))
    clause = f"{prompt[0].lower()}{prompt[1:-1]}" if prompt.endswith("?") else ""
    return Question(f"{count} {large}", prompt, clause, answer)


def _order(draw: random.Random) -> Question:
    numbers = draw.sample(range(10, 100), 3)
    first, second, third = sorted(numbers)
    listed = ", ".join(map(str, numbers))
    prompt = draw.choice(wordings()["order"]).format(said=_said(numbers), listed=listed)
    return Question(f"order {first} {second} {third}", prompt, "", f"{first}, {second}, {third}")


def _extreme(draw: random.Random) -> Question:
    numbers = draw.sample(range(10, 100), draw.choice((2, 3)))
    which, found = draw.choice((("largest", max(numbers)), ("smallest", min(numbers))))
    clause = draw.choice(wordings()["extreme"]).format(which=which, said=_said(numbers))
    prompt = f"{_capital(clause)}?" + draw.choice(("", " Answer with a number."))
    problem = f"{which} extreme {' '.join(map(str, sorted(numbers)))}"
    return Question(problem, prompt, clause, f"The {which} of the numbers is {found}.")


def _fact(draw: random.Random) -> Question:
    clause, answer = draw.choice(wordings()["facts"])
    prompt = draw.choice(wordings()["fact"]).format(asked=f"{_capital(clause)}?")
    return Question(clause, prompt, clause, answer, fact=answer)


@cache
def wordings() -> dict[str, Any]:
    """The contents of `assets/questions.json`: wordings by what they ask for, and the words that fill them."""
    found: dict[str, Any] = json.loads((ASSETS / "questions.json").read_text(encoding="utf-8"))
    return found


def _said(numbers: list[int]) -> str:
    return f"{', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def _capital(clause: str) -> str:
    return clause[0].upper() + clause[1:]
