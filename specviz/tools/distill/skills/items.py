"""The questions on which cascades with a specialist are measured: about its skills, about facts, and about both in one question.

`python -m specviz.tools.distill.skills.items` writes them into `assets/skills.jsonl`. Skills are asked about problems of the split "test". Facts are built-in
questions, so that no drafter was trained on them, and some more; no fact is asked twice.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from typing import Any

from specviz.analysis.sweep.items import SKILL_ITEMS, load_items
from specviz.files import write_whole
from specviz.tools.distill.skills.examples import draw_question, with_fact
from specviz.tools.distill.skills.question import Part, Question

_SEED = 1
_PURE = {"sum": 23, "difference": 23, "conversion": 14, "order": 10}
"""Number of questions about a skill alone. Products are taught too, but not learned reliably enough to be asked."""
_MIXED = {"sum": 24, "difference": 24, "conversion": 12}
"""Number of questions about a skill and a fact."""
_FACTS = 110
"""Number of questions about a fact alone."""
_MORE_FACTS = (
    ("what is the capital of the Netherlands", "Amsterdam"),
    ("what is the capital of Switzerland", "Bern", "Berne"),
    ('what is the opposite of "yes"', "no"),
    ('what is the opposite of "heavy"', "light"),
    ('what is the opposite of "tall"', "short", "small"),
    ('what is the opposite of "thick"', "thin"),
    ('what is the opposite of "asleep"', "awake"),
    ("which day comes after Saturday", "Sunday"),
    ("which month comes after September", "October"),
    ("what color is a ripe strawberry", "red"),
    ("what color is an emerald", "green"),
    ("which continent is Germany in", "Europe"),
    ("which continent is Morocco in", "Africa"),
    ("which language do most people speak in Portugal", "Portuguese"),
    ("what is a baby horse called", "foal", "foals", "colt", "filly"),
    ("who wrote the play Hamlet", "Shakespeare"),
    ("which season comes after spring", "summer"),
    ("which animal barks", "dog", "dogs"),
    ("which planet has rings", "Saturn", "Jupiter", "Uranus", "Neptune"),
    ("where do polar bears live", "Arctic", "ice", "North Pole", "polar"),
)
"""A clause and its right answers."""
_WORD = re.compile(r"\w+")
_FRAME = re.compile(r"^Answer in a few words: | Answer in a short sentence\.$")


def measured_items() -> list[dict[str, Any]]:
    """The items as `load_items` reads them: of the kinds "skill", "fact" and "mixed"."""
    draw = random.Random(_SEED)
    facts = [item for item in load_items().items if item.kind in ("factual", "commonsense")]
    draw.shuffle(facts)
    # A number could be mistaken for the answer to the other question.
    numeric = [item for item in facts if any(character.isdigit() for character in "".join(item.answers))]
    alone = (numeric + [item for item in facts if item not in numeric])[:_FACTS]
    beside = [(_clause(item.prompt), *item.answers) for item in facts if item not in alone] + list(
        _MORE_FACTS
    )
    draw.shuffle(beside)
    skills = [_item("skill", one) for one in _distinct(draw, _PURE)]
    known = [{"kind": "fact", "prompt": item.prompt, "answers": list(item.answers)} for item in alone]
    mixed = []
    for question, (clause, *right) in zip(_distinct(draw, _MIXED, clause=True), beside, strict=True):
        fact = Question("fact", clause, "", clause, (Part(right[0]),), tuple(right))
        mixed.append(_item("mixed", with_fact(draw, question, fact)) | {"also": right})
    return [
        {"key": f"{record['kind']}-{number:03d}"} | record
        for group in (skills, known, mixed)
        for number, record in enumerate(group, 1)
    ]


def _distinct(draw: random.Random, counts: dict[str, int], *, clause: bool = False) -> Iterator[Question]:
    """Questions about different problems, whose answers do not occur in the question."""
    seen = set[str]()
    for skill, count in counts.items():
        wanted = len(seen) + count
        while len(seen) < wanted:
            question = draw_question(draw, skill, "test")
            asked = " ".join(["", *_WORD.findall(question.prompt), ""])
            is_named = any(f" {one} " in asked for one in question.right)
            if question.problem in seen or is_named or (clause and not question.clause):
                continue
            seen.add(question.problem)
            yield question


def _item(kind: str, question: Question) -> dict[str, Any]:
    right = [form for one in question.right for form in dict.fromkeys((one, _with_comma(one)))]
    return {"kind": kind, "prompt": question.prompt, "answers": right}


def _with_comma(number: str) -> str:
    return f"{int(number):,}" if number.isdigit() else number


def _clause(prompt: str) -> str:
    text = _FRAME.sub("", prompt).removesuffix("?")
    return text[0].lower() + text[1:]


if __name__ == "__main__":
    write_whole(
        SKILL_ITEMS, "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in measured_items())
    )
