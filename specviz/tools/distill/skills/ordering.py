"""Numbers in order: sorted, the largest, the smallest."""

from __future__ import annotations

import random

from specviz.tools.distill.skills.question import Part, Question

SKILLS = ("order", "extreme")


def draw_question(draw: random.Random, skill: str) -> Question:
    """A question of one of `SKILLS`."""
    count = 3 if skill == "order" else draw.choice((2, 3))
    numbers = draw.sample(range(10, 100), count)
    ordered = sorted(numbers)
    problem = f"{skill} {' '.join(map(str, ordered))}"
    said = f"{', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"
    if skill == "order":
        text, right = ", ".join(map(str, ordered)), " ".join(map(str, ordered))
        prompt = draw.choice(
            (
                f"Put the numbers {said} in order, the smallest first.",
                f"Order these numbers from smallest to largest: {', '.join(map(str, numbers))}.",
            )
        )
        answers = (right, f"{ordered[0]} {ordered[1]} and {ordered[2]}")
        return Question(skill, problem, prompt, "", (Part(text),), answers)
    which, found = draw.choice((("largest", ordered[-1]), ("smallest", ordered[0])))
    clause = draw.choice(
        (f"what is the {which} of the numbers {said}", f"which of the numbers {said} is the {which}")
    )
    prompt = f"{clause[0].upper()}{clause[1:]}?" + draw.choice(("", " Answer with a number."))
    answer = f"The {which} of the numbers is {found}."
    return Question(skill, f"{which} {problem}", prompt, clause, (Part(answer),), (str(found),))
