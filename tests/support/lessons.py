"""A lesson as small as one can be, written by a test into a folder of its own, and the shelf that its pictures get runs from."""

from __future__ import annotations

from pathlib import Path

from specviz.analysis.recorded_runs import read_recorded_runs
from specviz.lessons.lesson import BrokenLesson, Lesson, read_lesson, read_words
from specviz.lessons.pictures import Shelf
from specviz.lessons.shelf import FOLDER

WORDS, _ = read_words([FOLDER])

STEP = """
kind: coin
run: lossless
place: first rejected
choices: [kept, rejected]
right: verdict
"""
HEAD = """
title: A lesson
about: About it.
end: The end of it.
"""
TEXT = """
title: A step about {draft}
before: The drafter gave it {q}.
question: Will it stay?
choices:
  kept: It stays
  rejected: It goes
answer:
  kept: It stayed, with {chance}.
  rejected: It went, with {chance}.
notes: Say something.
"""


def write_lesson(folder: Path, **files: str) -> Path:
    """Write the small lesson; `files` replace its own, by "en/lesson", "step" and "en/step", or add to them; "" leaves one out."""
    given = {"01-step.yaml": STEP, "en/lesson.yaml": HEAD, "en/01-step.yaml": TEXT} | files
    for name, content in given.items():
        if content:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(content.lstrip("\n"), encoding="utf-8")
    return folder


def read(folder: Path) -> Lesson | BrokenLesson:
    """Read a lesson with the project's own words, runs, and no sweep."""
    return read_lesson(folder, Shelf(folder, read_recorded_runs(), None), WORDS)
