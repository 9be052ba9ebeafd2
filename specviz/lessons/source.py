"""One file of a lesson as entries that know their lines: plain YAML, of which only text, lists and mappings are read.

Knows nothing of what a lesson is. A file is untrusted: a tag, an alias or a control character is an error, and every scalar is text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from specviz.errors import LessonError, has_half_characters, quoted

MAX_BYTES = 60_000
"""Of one file."""
_UNFIT = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]")
"""Control characters, and those that turn the direction of writing."""
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's where PyYAML was built with it: ten times as fast, and the page waits for it."""
_PLAIN = re.compile(r"tag:yaml[.]org,2002:(str|int|float|bool|null|timestamp|seq|map|merge|value)")


@dataclass(frozen=True)
class Entry:
    """A value in a file: text, a list of entries, or a mapping of entries by name; and its line, from 1."""

    value: str | list[Entry] | dict[str, Entry]
    file: str
    line: int

    def error(self, sentence: str) -> LessonError:
        """An error about this value."""
        return LessonError(f"{self.file}, line {self.line}: {sentence}")

    @property
    def text(self) -> str:
        """The value as text; LessonError if it is none, or empty."""
        if isinstance(self.value, str) and self.value.strip():
            return self.value.strip()
        raise self.error("here must be text.")

    @property
    def number(self) -> float:
        """The value as a number; LessonError if it is none."""
        if isinstance(self.value, str) and re.fullmatch(r"-?[0-9]{1,6}([.][0-9]{1,9})?", self.value):
            return float(self.value)
        raise self.error(f"here must be a number, not {quoted(self.value)}.")

    @property
    def items(self) -> list[Entry]:
        """The value as a list; LessonError if it is none, or empty."""
        if isinstance(self.value, list) and self.value:
            return self.value
        raise self.error("here must be a list, such as [one, other].")

    @property
    def names(self) -> list[str]:
        """The value as a list of texts, each once."""
        found = [item.text for item in self.items]
        if len(set(found)) < len(found):
            raise self.error("every name may stand here once.")
        return found

    @property
    def fields(self) -> dict[str, Entry]:
        """The value as a mapping; LessonError if it is none."""
        if isinstance(self.value, dict):
            return self.value
        raise self.error("here must be names with values, such as “kind: coin”.")

    def one_of(self, known: Iterable[str], what: str) -> str:
        """The value, if it is one of `known`; `what` is what a value is called, with its article."""
        known = list(known)
        if self.text not in known:
            raise self.error(f"{quoted(self.text)} is not {what}; there are {', '.join(known)}.")
        return self.text

    def only(self, known: Iterable[str], required: Iterable[str] = ()) -> dict[str, Entry]:
        """The fields, if all are known, and those required are there."""
        known = list(known)
        for name, field in self.fields.items():
            if name not in known:
                raise field.error(f"{quoted(name)} is not known here; known are {', '.join(known)}.")
        for name in required:
            if name not in self.fields:
                raise self.error(f"“{name}” is missing.")
        return self.fields


def read_source(path: Path, name: str) -> Entry:
    """The file as a mapping; `name` is what an error calls it.

    Raises:
        LessonError: missing, too large, not UTF-8, or not plain YAML.
    """
    start = Entry({}, name, 1)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise start.error("this file is missing, or cannot be read.") from error
    if len(content) > MAX_BYTES:
        raise start.error(f"this file is larger than {MAX_BYTES // 1000} kB.")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Entry({}, name, content[: error.start].count(b"\n") + 1).error("this is not UTF-8.") from error
    if found := _UNFIT.search(text.replace("\r\n", "\n")):
        line = text.count("\n", 0, found.start()) + 1
        raise Entry({}, name, line).error("there is a control character in this line.")
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            if isinstance(event, yaml.AliasEvent):
                raise Entry({}, name, event.start_mark.line + 1).error("references (*name) are not read.")
        node = yaml.compose(text, Loader=_LOADER)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        problem = getattr(error, "problem", None) or "it cannot be read"
        raise Entry({}, name, line).error(
            f"this is not plain YAML ({problem}); text with a colon goes in quotes."
        ) from error
    if not isinstance(node, yaml.MappingNode):
        raise start.error("this file must begin with a name and a colon, such as “title: …”.")
    return _entry(node, name)


def _entry(node: Any, file: str) -> Entry:
    here = Entry({}, file, node.start_mark.line + 1)
    if not _PLAIN.fullmatch(node.tag):
        raise here.error("tags (!name) are not read.")
    value: str | list[Entry] | dict[str, Entry]
    if isinstance(node, yaml.ScalarNode):
        if has_half_characters(node.value) or _UNFIT.search(node.value):
            raise here.error("there is a control character in this text.")
        value = node.value
    elif isinstance(node, yaml.SequenceNode):
        value = [_entry(each, file) for each in node.value]
    else:
        value = {}
        for key, each in node.value:
            entry = _entry(each, file)
            name = _entry(key, file).text
            if name in value:
                raise Entry({}, file, key.start_mark.line + 1).error(f"{quoted(name)} is given twice.")
            value[name] = Entry(entry.value, file, key.start_mark.line + 1)
    return Entry(value, file, here.line)
