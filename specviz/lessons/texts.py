"""Reads the text of a lesson in one language from a Markdown file. Does not know the pictures or their numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from specviz.errors import LessonError

MAX_CHOICES = 9
"""Maximum choices of a question: the keys 1 to 9 select them."""
_HEADING = re.compile(r"^(#{1,3}) +(.+)$", re.MULTILINE)
_CHOICE = re.compile(r"^- +\[([ xX])\] +", re.MULTILINE)
_END = re.compile(r"^---$", re.MULTILINE)
_BLANK = re.compile(r"\n\s*\n")
_NOTE = re.compile(r"^> ?", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


@dataclass
class StepText:
    """The text of a step in one language.

    Attributes:
        deeper: whether it is a detail of the step before it, skipped unless the speaker opens it.
        before: the text before the question; all of the text if there is no question.
        choices: the possible answers; empty if there is no question.
        right: index of the right choice; None if there is no question.
        answer: the text after the choices.
        notes: for the speaker only.
    """

    deeper: bool
    title: str
    before: str = ""
    question: str = ""
    choices: list[str] = field(default_factory=list)
    right: int | None = None
    answer: str = ""
    notes: str = ""

    @property
    def plain_title(self) -> str:
        """The title, with … in place of each name in braces."""
        return _PLACEHOLDER.sub("…", self.title)

    def placeholders(self) -> set[str]:
        """The names in braces in all parts of the step."""
        texts = (self.title, self.before, self.question, *self.choices, self.answer, self.notes)
        return {name for text in texts for name in _PLACEHOLDER.findall(text)}


@dataclass(frozen=True)
class LessonText:
    """A lesson in one language: title, introduction, steps and last words. `file` is its name in error messages."""

    file: str
    title: str
    about: str
    steps: list[StepText]
    end: str

    @property
    def forms(self) -> list[tuple[bool, int, int | None]]:
        """For each step, what must be equal in all languages: whether it is deeper, number of choices, right choice."""
        return [(step.deeper, len(step.choices), step.right) for step in self.steps]


def read_text(path: Path, file: str) -> LessonText:
    """Read a Markdown file; `file` is its name in error messages.

    Raises:
        LessonError: the file cannot be read or has the wrong form. For an error in a step, the message names its number.
    """
    try:
        text, *ends = _END.split(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise LessonError(f"{file}: this file cannot be read as UTF-8 text.") from error
    titles, steps = [], list[StepText]()
    _, *parts = _HEADING.split(text)
    for level, title, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        if level == "#":
            titles.append((title, _paragraphs(body)))
        else:
            where = f"{file}, step {len(steps) + 1}"
            steps.append(_step(StepText(level == "###", title), body, where))
    if len(titles) != 1 or not steps or steps[0].deeper:
        raise LessonError(
            f"{file}: there must be one title (“# …”), then steps (“## …”), the first not deeper."
        )
    [(title, about)] = titles
    return LessonText(file, title, "\n".join(about), steps, "\n".join(_paragraphs("\n\n".join(ends))))


def _paragraphs(body: str) -> list[str]:
    return [" ".join(each.split("\n")).strip() for each in _BLANK.split(body) if each.strip()]


def _step(step: StepText, body: str, where: str) -> StepText:
    """Fill in a step from the text below its heading: text, question, choices, answer, notes. `where` begins error messages."""
    blocks = _BLANK.split(_CHOICE.sub(lambda found: f"\n\n{found[0]}", body))
    notes = [each for each in blocks if each.lstrip().startswith(">")]
    step.notes = "\n".join(one for each in notes for one in _paragraphs(_NOTE.sub("", each.lstrip())))
    said = [one for each in blocks if each not in notes for one in _paragraphs(each)]
    choices = [(each, mark[1]) for each in said if (mark := _CHOICE.match(each))]
    if not choices:
        step.before = "\n".join(said)
        return step
    first = said.index(choices[0][0])
    *before, step.question = said[:first] or [""]
    step.before, step.answer = "\n".join(before), "\n".join(said[first + len(choices) :])
    step.choices = [_CHOICE.sub("", each) for each, _ in choices]
    right = [at for at, (_, mark) in enumerate(choices) if mark != " "]
    if not step.question or not step.answer or len(right) != 1 or len(choices) > MAX_CHOICES:
        raise LessonError(
            f"{where}: a list of up to {MAX_CHOICES} choices needs a question before it, an answer behind it, and one right choice (“- [x] …”)."
        )
    [step.right] = right
    return step
