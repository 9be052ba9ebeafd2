"""Finds the lessons: the project's own, and those in a folder that the server's owner names.

Visitors open a lesson by name and cannot give a path.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from specviz import environment
from specviz.analysis.recorded_runs import read_recorded_runs
from specviz.analysis.sweep.folder import shown_sweeps
from specviz.errors import SpecvizError
from specviz.lessons.lesson import BrokenLesson, Lesson, Words, read_lesson, read_words
from specviz.lessons.pictures import Shelf
from specviz.resources import ASSETS

FOLDER = ASSETS / "lessons"
"""The project's own lessons."""
_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")


@dataclass(frozen=True)
class Lessons:
    """All lessons by name, the project's own first, and the words of buttons and pictures."""

    lessons: Mapping[str, Lesson | BrokenLesson]
    words: Words


@cache
def shown_lessons() -> Lessons:
    """The lessons, read once per process."""
    return read_lessons()


def read_lessons() -> Lessons:
    """Read the project's lessons and those in the folder SPECVIZ_LESSONS. One that cannot be read becomes a `BrokenLesson`; the others work."""
    named = environment.LESSONS.value()
    folders = [FOLDER, *([named] if named else [])]
    found: dict[str, Lesson | BrokenLesson] = {}
    try:
        words = read_words(folders)
    except SpecvizError as error:
        found["words"] = BrokenLesson("words", str(error))
        words = read_words([FOLDER])
    runs, sweeps = read_recorded_runs(), {each.name: each for each in shown_sweeps().values()}
    for folder in folders:
        for path in sorted(each for each in folder.iterdir() if each.is_dir() and each.name != "words"):
            found[path.name] = _read(path, Shelf(path, runs, sweeps), words)
    return Lessons(found, words)


def _read(path: Path, shelf: Shelf, words: Words) -> Lesson | BrokenLesson:
    if not _NAME.fullmatch(path.name):
        return BrokenLesson(path.name, "The name of a lesson’s folder has small letters, digits and hyphens.")
    try:
        lesson = read_lesson(path, shelf, words)
        if path.parent != FOLDER:  # the project's own have no errors, and take a second to read
            _ = lesson.steps
        return lesson
    except SpecvizError as error:
        return BrokenLesson(path.name, str(error))
