"""Which lessons there are: the project's own, and those in a folder that the server's owner names.

A visitor names one of those loaded, never a path.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from specviz.analysis.recorded_runs import RecordedRuns, read_recorded_runs
from specviz.analysis.sweep.folder import shown_sweep
from specviz.errors import TraceError
from specviz.lessons.lesson import NAME, BrokenLesson, Lesson, Words, read_lesson, read_words
from specviz.lessons.pictures import Shelf
from specviz.resources import ASSETS

FOLDER = ASSETS / "lessons"
"""The project's own lessons."""
VARIABLE = "SPECVIZ_LESSONS"
"""The environment variable that names a folder of further ones."""


@dataclass(frozen=True)
class Lessons:
    """All lessons by name, the project's own first, and the words of buttons and pictures."""

    lessons: Mapping[str, Lesson | BrokenLesson]
    words: Words


@cache
def shown_lessons() -> Lessons:
    """The lessons of this process, read once."""
    return read_lessons()


def read_lessons() -> Lessons:
    """Read all lessons there are: the project's own, and those in the folder that the environment names."""
    named = os.environ.get(VARIABLE)
    folders = [FOLDER, *([Path(named).expanduser()] if named else [])]
    words, problems = read_words(folders)
    try:
        runs = read_recorded_runs()
    except TraceError:
        runs = RecordedRuns(FOLDER, "", "", 0.0, ())
    sweep = shown_sweep()
    found: dict[str, Lesson | BrokenLesson] = {}
    for folder in folders:
        if not folder.is_dir():
            found["lessons"] = BrokenLesson("lessons", f"The folder that {VARIABLE} names is not there.")
            continue
        for path in sorted(each for each in folder.iterdir() if each.is_dir() and each.name != "words"):
            if not NAME.fullmatch(path.name):
                problem = "A lesson’s folder must have a name of small letters, digits and hyphens."
                found["unnamed"] = BrokenLesson("unnamed", problem)
                continue
            # The project's own are sound, and take traces and torch: their steps are read when one is opened. Another's errors are
            # to be told in the list.
            found[path.name] = read_lesson(path, Shelf(path, runs, sweep), words, whole=folder != FOLDER)
    for code, error in problems.items():
        found.setdefault(f"words-{code.lower()}", BrokenLesson(f"words-{code.lower()}", str(error)))
    return Lessons(found, words)
