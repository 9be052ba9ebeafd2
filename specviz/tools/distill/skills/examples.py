"""Training examples: questions of all skills, some of which also ask for a fact. None is held out."""

from __future__ import annotations

import random
from collections.abc import Iterator

from specviz.tools.distill.skills import arithmetic, conversions, facts, ordering
from specviz.tools.distill.skills.question import Part, Question, measured_hashes, prompt_hash, split_of

MIXED = "mixed"
_SHARES = {
    "sum": 0.29,
    "difference": 0.29,
    "product": 0.13,
    "conversion": 0.12,
    "order": 0.05,
    "extreme": 0.02,
    "fact": 0.10,
}
"""Share of the questions that ask for each skill."""
_MIXED_SHARE = 0.3
"""Share of questions that also ask for a fact, among those that can."""
_BY_SKILL = {
    skill: module for module in (arithmetic, conversions, ordering, facts) for skill in module.SKILLS
}
SKILLS = tuple(skill for skill in _BY_SKILL if skill not in facts.SKILLS)
"""The skills that are taught."""


def training_examples(seed: int) -> Iterator[Question]:
    """Endless questions. None has a held-out problem or a prompt on which drafters are measured."""
    draw = random.Random(seed)
    skills, shares = tuple(_SHARES), tuple(_SHARES.values())
    while True:
        (skill,) = draw.choices(skills, shares)
        question = draw_question(draw, skill, "training")
        if question.clause and skill not in facts.SKILLS and draw.random() < _MIXED_SHARE:
            question = with_fact(draw, question, facts.draw_question(draw, "fact"))
        if prompt_hash(question.prompt) not in measured_hashes():
            yield question


def draw_question(draw: random.Random, skill: str, split: str) -> Question:
    """A question of a skill whose problem is in `split`, according to `split_of`; facts have no splits."""
    while True:
        question = _BY_SKILL[skill].draw_question(draw, skill)
        if skill in facts.SKILLS or split_of(question.problem) == split:
            return question


def with_fact(draw: random.Random, question: Question, fact: Question) -> Question:
    """One question that asks both, in either order; the answer has a line for each."""
    two = [question, fact]
    draw.shuffle(two)
    first, second = two
    prompt = draw.choice(
        (
            f"{_capital(first.clause)}, and {second.clause}?",
            f"{_capital(first.clause)}, and {second.clause}? Answer both questions.",
            f"Answer both questions. {_capital(first.clause)}? {_capital(second.clause)}?",
        )
    )
    answer = (*first.answer, Part("\n"), *second.answer)
    return Question(MIXED, question.problem, prompt, "", answer, question.right)


def _capital(clause: str) -> str:
    return clause[0].upper() + clause[1:]
