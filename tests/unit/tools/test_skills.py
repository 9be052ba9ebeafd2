"""Questions with known answers: none that is measured is taught, and every answer is right."""

from __future__ import annotations

import json
import random
import re
from itertools import islice

from specviz.analysis.sweep.items import SKILL_ITEMS
from specviz.tools.distill.skills import (
    draw_question,
    is_held_out,
    measured_prompts,
    normalised,
    training_examples,
    with_fact,
    wordings,
)


def test_no_problem_and_no_prompt_that_is_measured_is_taught() -> None:
    """By problem, whatever the wording; by the prompt; and no fact beside a skill is asked in the items."""
    taught = list(islice(training_examples(0), 2000))
    assert all(question.fact == question.answer or not is_held_out(question.problem) for question in taught)
    assert not {normalised(question.prompt) for question in taught} & measured_prompts()
    items = SKILL_ITEMS.read_text(encoding="utf-8").splitlines()
    asked = " ".join(json.loads(item)["prompt"].lower() for item in items)
    assert not [
        clause for clause, _ in wordings()["facts"] if re.search(rf"{re.escape(clause.lower())}\b", asked)
    ]


def test_an_answer_that_is_taught_is_right() -> None:
    """Arithmetic is computed again from the problem."""
    draw = random.Random(5)
    for skill in ("sum", "difference", "product") * 100:
        question = draw_question(draw, skill)
        a, sign, b = question.problem.split()
        right = {"+": int(a) + int(b), "-": int(a) - int(b), "*": int(a) * int(b)}[sign]
        assert str(right) in re.findall(r"\d+", question.answer)


def test_in_a_mixed_question_the_fact_is_not_taught() -> None:
    draw = random.Random(2)
    question, fact = draw_question(draw, "extreme"), draw_question(draw, "fact")
    both = with_fact(draw, question, fact)
    assert both.fact == fact.answer
    assert set(both.answer.split("\n")) == {question.answer, fact.answer}
