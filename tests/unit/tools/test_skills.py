"""Questions with known answers: none that is measured is taught, and every answer is right."""

from __future__ import annotations

import json
import random
import re
from itertools import islice

from specviz.analysis.sweep.items import SKILL_ITEMS, Item, Items
from specviz.tools.distill.skills import (
    draw_question,
    is_held_out,
    measured_hashes,
    prompt_hash,
    training_examples,
    with_fact,
    wordings,
)


def test_no_problem_and_no_prompt_that_is_measured_is_taught() -> None:
    """By problem, whatever the wording; by the hash of the prompt; and no fact beside a skill is asked in the items."""
    taught = list(islice(training_examples(0), 2000))
    assert all(question.skill == "fact" or not is_held_out(question.problem) for question in taught)
    assert not {prompt_hash(question.prompt) for question in taught} & measured_hashes()
    items = SKILL_ITEMS.read_text(encoding="utf-8").splitlines()
    asked = " ".join(json.loads(item)["prompt"].lower() for item in items)
    assert not [
        clause for clause, _ in wordings()["facts"] if re.search(rf"{re.escape(clause.lower())}\b", asked)
    ]


def test_an_answer_that_is_taught_is_right() -> None:
    """By the grader of the sweeps; arithmetic is computed again from the problem."""
    draw = random.Random(5)
    for skill in ("sum", "difference", "product", "conversion", "order", "extreme") * 100:
        question = draw_question(draw, skill)
        text = "".join(part.text for part in question.answer)
        assert Items("", (Item("", skill, question.prompt, question.right),)).score(0, text) == 1
        if found := re.fullmatch(r"(\d+) ([-+*]) (\d+)", question.problem):
            a, sign, b = int(found[1]), found[2], int(found[3])
            assert question.right == (str({"+": a + b, "-": a - b, "*": a * b}[sign]),)


def test_in_a_mixed_question_the_fact_is_not_taught() -> None:
    draw = random.Random(2)
    question, fact = draw_question(draw, "extreme"), draw_question(draw, "fact")
    both = with_fact(draw, question, fact)
    assert {part.text for part in both.answer if not part.taught} == {fact.answer[0].text}
    assert {part.text for part in both.answer if part.taught} == {question.answer[0].text, "\n"}
