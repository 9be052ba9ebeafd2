"""A lesson: its steps in order, each with its picture and its words in every language; read from a folder, checked, and
handed to the browser as one object.

Knows the format of docs/lessons.md and the kinds of `pictures`; knows neither where lessons lie nor what shows them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from specviz.errors import LessonError, SpecvizError
from specviz.lessons.pictures import KINDS, Picture, Shelf
from specviz.lessons.source import Entry, read_source

NAME = re.compile(r"[a-z][a-z0-9-]{0,40}")
"""What a lesson may be called, in its folder and in a link."""
LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})?")
MAX_STEPS = 60
MAX_TEXT = 1200
"""Characters of one text of a step; notes may have four times as many."""
_STEP = re.compile(r"[0-9]{2}[a-z0-9-]*[.]yaml")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_COMMON = ("kind", "deeper", "choices", "right")
_LESSON_TEXT = ("title", "about", "end")

Words = Mapping[str, Mapping[str, str]]
"""The words of buttons and pictures, by language and name."""


@dataclass(frozen=True)
class Step:
    """One step.

    Attributes:
        name: its file's, without the ending.
        deeper: whether it belongs below the step before it, and is passed over by who goes straight on.
        picture: what it shows.
        choices: keys of the answers to choose from, empty where nothing is asked; `right` is the right one.
        texts: by language: title, before, question, choices, answer, labels, notes.
    """

    name: str
    kind: str
    deeper: bool
    picture: Picture
    choices: tuple[str, ...]
    right: str
    texts: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Lesson:
    """A lesson.

    Attributes:
        texts: its title, what it is about and its last words, by language.
        deeper: of each step, whether it lies deeper.
        read: reads the steps with their pictures.
    """

    name: str
    texts: Mapping[str, Mapping[str, str]]
    deeper: tuple[bool, ...]
    read: Callable[[], tuple[Step, ...]] = field(repr=False)

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """Its steps; read when first asked for.

        Raises:
            SpecvizError: one of them has an error.
        """
        return self.read()

    @property
    def main(self) -> int:
        """How many steps are walked by who never goes deeper."""
        return self.deeper.count(False)

    def told(self, words: Words) -> dict[str, Any]:
        """The lesson, JSON-ready, for the browser."""
        steps = [
            {
                "name": step.name,
                "kind": step.kind,
                "deeper": step.deeper,
                "data": step.picture.data,
                "values": step.picture.values,
                "choices": step.choices,
                "right": step.right,
                "texts": step.texts,
            }
            for step in self.steps
        ]
        languages = {code: {**text, "words": words[code]} for code, text in self.texts.items()}
        return {"name": self.name, "languages": languages, "steps": steps}


@dataclass(frozen=True)
class BrokenLesson:
    """A lesson that cannot be shown, and the sentence that says why."""

    name: str
    problem: str


def read_lesson(folder: Path, shelf: Shelf, words: Words, *, whole: bool = True) -> Lesson | BrokenLesson:
    """Read a lesson's folder; one that has an error is told by its first one. Not `whole`: its steps are read when asked for."""
    try:
        lesson = _read(folder, shelf, words)
        if whole:
            _ = lesson.steps  # which reads them
        return lesson
    except SpecvizError as error:
        return BrokenLesson(folder.name, str(error))


def _read(folder: Path, shelf: Shelf, words: Words) -> Lesson:
    def source(name: str) -> Entry:
        return read_source(folder / name, f"{folder.name}/{name}")

    codes = sorted(each.parent.name for each in folder.glob("*/lesson.yaml"))
    codes.sort(key=lambda code: code != "en")  # English first, where there is one
    files = sorted(each.name for each in folder.glob("*.yaml"))
    whole = Entry({}, folder.name, 1)
    if not codes:
        raise LessonError(f"{folder.name}: there is no language yet: en/lesson.yaml is missing.")
    if not 1 <= len(files) <= MAX_STEPS:
        raise LessonError(f"{folder.name}: there must be 1 to {MAX_STEPS} steps, not {len(files)}.")
    texts = {}
    for code in codes:
        head = source(f"{code}/lesson.yaml")
        if code not in words or not LANGUAGE.fullmatch(code):
            raise head.error(f"there are no words for buttons and pictures in {code!r}: words/{code}.yaml.")
        fields = head.only(_LESSON_TEXT, _LESSON_TEXT)
        texts[code] = {name: _text(field, {}) for name, field in fields.items()}
    for name in files:
        if not _STEP.fullmatch(name):
            raise LessonError(f"{folder.name}/{name}: a step’s file is named like 01-a-name.yaml.")
    entries = {name: source(name) for name in files}
    deeper = tuple(map(_lies_deeper, entries.values()))
    if deeper[0]:
        raise LessonError(f"{whole.file}/{files[0]}: the first step cannot lie deeper.")

    def steps() -> tuple[Step, ...]:
        return tuple(
            _step(entry, {code: source(f"{code}/{name}") for code in codes}, name[:-5], shelf)
            for name, entry in entries.items()
        )

    return Lesson(folder.name, texts, deeper, steps)


def _lies_deeper(entry: Entry) -> bool:
    return (
        "deeper" in entry.fields
        and entry.fields["deeper"].one_of(("true", "false"), "true or false") == "true"
    )


def _step(entry: Entry, sources: Mapping[str, Entry], name: str, shelf: Shelf) -> Step:
    entry.only(entry.fields, ["kind"])
    label = entry.fields["kind"].one_of(KINDS, "a kind of step")
    kind = KINDS[label]
    fields = entry.only((*_COMMON, *kind.required, *kind.optional), kind.required)
    picture = kind.draw(entry, shelf)
    choices = tuple(fields["choices"].names) if "choices" in fields else ()
    right = ""
    if choices:
        if "right" not in fields:
            raise fields["choices"].error("“right” must say which of them is right.")
        asked = fields["right"].one_of((*choices, *picture.outcomes), "a choice or an outcome")
        right = asked if asked in choices else picture.outcomes[asked]
        if right not in choices:
            raise fields["choices"].error(f"the outcome {asked!r} is {right!r} here, and is none of them.")
    texts = {code: _texts(source, picture, choices, right) for code, source in sources.items()}
    return Step(name, label, _lies_deeper(entry), picture, choices, right, texts)


def _texts(entry: Entry, picture: Picture, choices: tuple[str, ...], right: str) -> dict[str, Any]:
    """The words of a step in one language, its answer that of the right choice."""
    asked = ("question", "choices", "answer") if choices else ()
    labelled = ("labels",) if picture.labels else ()
    fields = entry.only(("title", "before", "notes", *asked, *labelled), ("title", *asked, *labelled))
    found: dict[str, Any] = {
        name: _text(fields[name], picture, 4 if name == "notes" else 1)
        for name in ("title", "before", "question", "notes")
        if name in fields
    }
    if labelled:
        found["labels"] = _each(fields["labels"], picture.labels, picture)
    if asked:
        found["choices"] = _each(fields["choices"], choices, picture)
        answer = fields["answer"]
        if isinstance(answer.value, dict):
            found["answer"] = _each(answer, choices, picture)[right]
        else:
            found["answer"] = _text(answer, picture)
    return found


def _each(entry: Entry, names: tuple[str, ...], picture: Picture) -> dict[str, str]:
    return {name: _text(field, picture) for name, field in entry.only(names, names).items()}


def _text(entry: Entry, picture: Picture | Mapping[str, Any], times: int = 1) -> str:
    """A text whose every brace is a placeholder that the picture fills."""
    text = entry.text
    if len(text) > times * MAX_TEXT:
        raise entry.error(f"this text is longer than {times * MAX_TEXT} characters.")
    known = {*picture.values, *picture.computed} if isinstance(picture, Picture) else set()
    for found in _PLACEHOLDER.findall(text):
        if found not in known:
            names = ", ".join(f"{{{name}}}" for name in sorted(known)[:40]) or "none"
            raise entry.error(f"there is no {{{found[:40]}}} here; there is {names}.")
    if re.search(r"[{}]", _PLACEHOLDER.sub("", text)):
        raise entry.error("a brace stands alone; braces are for numbers, such as {q}.")
    return text


def read_words(folders: list[Path]) -> tuple[dict[str, dict[str, str]], dict[str, LessonError]]:
    """The words of buttons and pictures in every language, and what is wrong with those that are left out.

    English is the measure of what there must be; a later folder's language replaces an earlier one's.
    """
    found: dict[str, dict[str, str]] = {}
    problems: dict[str, LessonError] = {}
    paths = [path for folder in folders for path in (folder / "words").glob("*.yaml")]
    for path in sorted(paths, key=lambda path: path.stem != "en"):
        try:
            entry = read_source(path, f"words/{path.name}")
            names = list(found.get("en", entry.fields))
            texts = {name: field.text for name, field in entry.only(names, names).items()}
            for name, text in texts.items() if "en" in found else ():
                wanted = set(_PLACEHOLDER.findall(found["en"][name]))
                if set(_PLACEHOLDER.findall(text)) != wanted:
                    raise entry.fields[name].error(
                        f"the placeholders must be those of the English: {sorted(wanted)}."
                    )
            found[path.stem] = texts
        except LessonError as error:
            problems[path.stem] = error
    return found, problems
