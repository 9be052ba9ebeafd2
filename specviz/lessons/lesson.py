"""Lessons: the project's own, and those in a folder that the server's owner names. A lesson has steps, each with a picture and a text
in every language.

Visitors open a lesson by name and cannot give a path.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Any

import yaml

from specviz import environment
from specviz.errors import LessonError, SpecvizError
from specviz.lessons.pictures import Picture, draw
from specviz.lessons.texts import LessonText, StepText, read_text
from specviz.resources import ASSETS

FOLDER = ASSETS / "lessons"
"""The project's own lessons."""
PICTURES = "pictures.yaml"
"""The file that says what each step shows."""

Words = Mapping[str, Mapping[str, str]]
"""The words of buttons and pictures, by language and name."""


@dataclass(frozen=True)
class Step:
    """One step: the kind of its picture, the picture, and its text by language; `minutes` is the time planned for the step."""

    kind: str
    minutes: float
    picture: Picture
    texts: Mapping[str, StepText]


@dataclass(frozen=True)
class Lesson:
    """A lesson: its folder, its text by language (English first, if present), and the words of all languages."""

    folder: Path
    texts: Mapping[str, LessonText]
    words: Words

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.folder.name

    @cached_property
    def _pictures(self) -> list[Any]:
        """The entries of the file of pictures, one for each step."""
        first = next(iter(self.texts.values()))
        pictures: list[Any] = _read_yaml(self.folder / PICTURES, f"{self.name}/{PICTURES}", list)
        if len(pictures) != len(first.steps):
            raise LessonError(
                f"{self.name}/{PICTURES}: there are {len(pictures)} pictures for {len(first.steps)} steps."
            )
        return pictures

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The lesson's steps; their recorded runs are read on first access.

        Raises:
            LessonError: a file or a step has an error. The message names the file and, for an error in a step, the step.
        """
        return tuple(self._step(number, fields) for number, fields in enumerate(self._pictures))

    def _step(self, index: int, fields: object) -> Step:
        try:
            if not isinstance(fields, dict):
                raise LessonError("a picture begins with its kind, such as “kind: coin”.")
            more = {"kind": "", "minutes": 0} | fields
            kind, minutes = str(more.pop("kind")), more.pop("minutes")
            if not isinstance(minutes, int | float):
                raise LessonError("“minutes” must be a number.")
            picture = draw(kind, more, self.folder)
        except SpecvizError as error:
            raise LessonError(f"{self.name}/{PICTURES}, step {index + 1}: {error}") from error
        texts = {code: text.steps[index] for code, text in self.texts.items()}
        known = picture.computed | picture.values.keys()
        for code, text in texts.items():
            if unknown := text.placeholders() - known:
                names = ", ".join(f"{{{name}}}" for name in sorted(known)) or "none"
                where = f"{self.texts[code].file}, step {index + 1}"
                raise LessonError(f"{where}: there is no {{{min(unknown)}}}; there is {names}.")
        return Step(kind, minutes, picture, texts)

    def cover(self) -> dict[str, Any]:
        """The lesson's entry in a list of lessons, JSON-ready. Raises LessonError if `pictures.yaml` has an error."""
        minutes = [fields.get("minutes", 0) for fields in self._pictures]
        languages = {
            code: {
                "title": text.title,
                "about": text.about,
                "end": text.end,
                "words": self.words[code],
                "route": [step.plain_title for step in text.steps if not step.deeper],
            }
            for code, text in self.texts.items()
        }
        steps = next(iter(self.texts.values())).steps
        route = [each for each, step in zip(minutes, steps, strict=True) if not step.deeper]
        return {
            "name": self.name,
            "main": len(route),
            "deeper": len(steps) - len(route),
            "minutes": sum(minutes),
            "route": route,
            "languages": languages,
        }


@dataclass(frozen=True)
class BrokenLesson:
    """A lesson that cannot be shown, and the sentence that says why."""

    name: str
    problem: str

    def cover(self) -> dict[str, Any]:
        """The lesson's entry in a list of lessons, JSON-ready."""
        return asdict(self)


@cache
def shown_lessons() -> dict[str, Lesson | BrokenLesson]:
    """The lessons by name, the project's own first, read once per process."""
    return read_lessons()


def read_lessons() -> dict[str, Lesson | BrokenLesson]:
    """Read the project's lessons and those in the folder SPECVIZ_LESSONS. A lesson that cannot be read becomes a `BrokenLesson`."""
    named = environment.LESSONS.value()
    folders = [FOLDER, *([named] if named else [])]
    found: dict[str, Lesson | BrokenLesson] = {}
    try:
        words = read_words(folders)
    except LessonError as error:
        found["words"] = BrokenLesson("words", str(error))
        words = read_words([FOLDER])
    for folder in folders:
        for path in sorted(each for each in folder.iterdir() if each.is_dir() and each.name != "words"):
            try:
                found[path.name] = lesson = _read_lesson(path, words)
                if folder != FOLDER:  # the project's own have no errors, and take a second to read
                    _ = lesson.steps
            except SpecvizError as error:
                found[path.name] = BrokenLesson(path.name, str(error))
    return found


def _read_lesson(folder: Path, words: Words) -> Lesson:
    paths = sorted(folder.glob("*.md"), key=lambda path: (path.stem != "en", path.stem))
    if not paths:
        raise LessonError(f"{folder.name}: there is no text, such as en.md.")
    texts = {path.stem: read_text(path, f"{folder.name}/{path.name}") for path in paths}
    first = next(iter(texts.values()))
    for code, text in texts.items():
        if code not in words:
            raise LessonError(f"{text.file}: there are no words for buttons in words/{code}.yaml.")
        for number, forms in enumerate(zip_longest(first.forms, text.forms), 1):
            if forms[0] != forms[1]:
                raise LessonError(
                    f"{text.file}, step {number}: depth, choices and right choice differ from {first.file}."
                )
    return Lesson(folder, texts, words)


def read_words(folders: list[Path]) -> dict[str, dict[str, str]]:
    """The words of buttons and pictures in every language; later folders replace words of earlier ones, and English fills gaps.

    Raises:
        LessonError: a file cannot be read.
    """
    paths = [path for folder in folders for path in sorted((folder / "words").glob("*.yaml"))]
    found: dict[str, dict[str, str]] = {}
    for path in sorted(paths, key=lambda path: path.stem != "en"):
        words = _read_yaml(path, f"words/{path.name}", dict)
        usual = found.get(path.stem) or found.get("en", {})
        found[path.stem] = usual | {str(name): str(text) for name, text in words.items()}
    return found


def _read_yaml(path: Path, name: str, kind: type) -> Any:
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
        json.dumps(found, allow_nan=False)  # no dates and no infinity: the browser gets it as JSON
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise LessonError(f"{name}, line {line}: this is not plain YAML ({error.problem}).") from error
    except (OSError, yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise LessonError(
            f"{name}: this is no UTF-8 text of YAML with texts, numbers, lists and names with values alone."
        ) from error
    if not isinstance(found, kind):
        form = "a list, one picture a step" if kind is list else "names with texts"
        raise LessonError(f"{name}: there must be {form}.")
    return found
