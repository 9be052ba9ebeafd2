"""A lesson: its steps in order, each with a picture and a text in every language.

Checks that texts and pictures fit together. Knows neither where lessons lie nor what shows them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Any

import yaml

from specviz.errors import LessonError, SpecvizError
from specviz.lessons.pictures import Picture, Shelf, draw
from specviz.lessons.texts import LessonText, StepText, read_text

PICTURES = "pictures.yaml"
"""The file that says what each step shows."""

Words = Mapping[str, Mapping[str, str]]
"""The words of buttons and pictures, by language and name."""


@dataclass(frozen=True)
class Step:
    """One step: the kind of its picture, the picture, and its text by language; `minutes` is the time planned for it."""

    kind: str
    minutes: float
    picture: Picture
    texts: Mapping[str, StepText]

    def told(self) -> dict[str, Any]:
        """The step, JSON-ready, for the browser."""
        first = next(iter(self.texts.values()))
        return {
            "kind": self.kind,
            "minutes": self.minutes,
            "deeper": first.deeper,
            "data": self.picture.data,
            "values": self.picture.values,
            "right": first.right,
            "texts": {code: asdict(text) for code, text in self.texts.items()},
        }


@dataclass(frozen=True)
class Lesson:
    """A lesson: the name of its folder, and its text by language, English first if there is English."""

    name: str
    texts: Mapping[str, LessonText]
    shelf: Shelf

    @cached_property
    def _pictures(self) -> list[Any]:
        """The entries of the file of pictures, one for each step."""
        first = next(iter(self.texts.values()))
        pictures: list[Any] = _read_yaml(self.shelf.folder / PICTURES, f"{self.name}/{PICTURES}", list)
        if len(pictures) != len(first.steps):
            raise LessonError(
                f"{self.name}/{PICTURES}: there are {len(pictures)} pictures for {len(first.steps)} steps."
            )
        return pictures

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """Its steps; their recorded runs are read on first access.

        Raises:
            LessonError: the file or a step has an error; the sentence names the file and, of an error in a step, the line or the step.
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
            picture = draw(kind, more, self.shelf)
        except SpecvizError as error:
            raise LessonError(f"{self.name}/{PICTURES}, step {index + 1}: {error}") from error
        texts = {code: text.steps[index] for code, text in self.texts.items()}
        known = picture.computed | picture.values.keys()
        for code, text in texts.items():
            if unknown := text.placeholders() - known:
                names = ", ".join(f"{{{name}}}" for name in sorted(known)) or "none"
                where = f"{self.texts[code].file}, line {text.line}"
                raise LessonError(f"{where}: there is no {{{min(unknown)}}} in this step; there is {names}.")
        return Step(kind, minutes, picture, texts)

    def cover(self, words: Words) -> dict[str, Any]:
        """What a list of lessons says of it, JSON-ready."""
        minutes = [fields.get("minutes", 0) for fields in self._pictures]
        languages = {
            code: {
                "title": text.title,
                "about": text.about,
                "end": text.end,
                "words": words[code],
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

    def told(self, words: Words) -> dict[str, Any]:
        """The whole lesson, JSON-ready, for the browser."""
        return self.cover(words) | {"steps": [step.told() for step in self.steps]}


@dataclass(frozen=True)
class BrokenLesson:
    """A lesson that cannot be shown, and the sentence that says why."""

    name: str
    problem: str


def read_lesson(folder: Path, shelf: Shelf, words: Words) -> Lesson:
    """Read the texts of the lesson in a folder.

    Raises:
        LessonError: there is no text, or one has an error; the sentence names file and line.
    """
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
    return Lesson(folder.name, texts, shelf)


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
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise LessonError(f"{name}: this file is missing, or no UTF-8 text.") from error
    except (ValueError, TypeError, RecursionError) as error:
        raise LessonError(
            f"{name}: it may hold texts, numbers, lists and names with values alone."
        ) from error
    if not isinstance(found, kind):
        form = "a list, one picture a step" if kind is list else "names with texts"
        raise LessonError(f"{name}: there must be {form}.")
    return found
