"""The questions of a sweep, built in or from a file of JSON lines, and the check whether an answer is right."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields
from decimal import Decimal
from itertools import zip_longest
from pathlib import Path

from specviz.errors import RequestError
from specviz.resources import ASSETS
from specviz.wording import joined

BUILT_IN = "built-in"
ARITHMETIC = "arithmetic"
"""The kind whose answers are numbers."""

SKILLS = "skills"
SKILL_ITEMS = ASSETS / "skills.jsonl"
"""Questions for the specialist drafter: about its skills, about facts, and about both."""
_KIND_WORDS = {"skill": "about a taught skill", "fact": "about a fact", "mixed": "about both"}
"""How `kind_words` describes the kinds of `SKILL_ITEMS`. For other kinds it uses their names."""

_OWN = {BUILT_IN: ASSETS / "tasks.jsonl", SKILLS: SKILL_ITEMS}
_WORD = re.compile(r"[^\W_]+")
_SURROGATE = re.compile("[\ud800-\udfff]")
# A minus is a sign only if no word or number precedes it: it is not in "7-3" and "7 minus 3".
_NUMBER = re.compile(
    r"(?P<sign>(?<![^\W_])[-−]|(?<!\d )\b(?:minus|negative) )?"
    r"(?<![^\W_])(?P<number>(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Item:
    """A question.

    Attributes:
        key: its name, for readers of a sweep's plan.
        kind: its category. The answers of "arithmetic" are numbers.
        prompt: what a user would type.
        answers: the right answers; empty if an answer cannot be checked.
        raw: whether the prompt is used without the chat template.
        also: the right answers to a second question in the prompt; empty if there is only one question.
    """

    key: str
    kind: str
    prompt: str
    answers: tuple[str, ...] = ()
    raw: bool = False
    also: tuple[str, ...] = ()


@dataclass(frozen=True)
class Items:
    """Questions, ordered so that kinds alternate and the first few cover every kind."""

    name: str
    items: tuple[Item, ...]

    def score(self, index: int, text: str) -> float | None:
        """Whether `text` answers the item at `index`: 1.0 if right, 0.0 if wrong, None if it has no answers.

        For "arithmetic", the last number of the text must equal one of the answers. Signs and thousands separators are
        understood, numbers in words are not. For other kinds, one of the answers must occur in the text as whole words; if the item
        asks two questions, so must one of `also`. Case, punctuation (after Unicode NFKC) and the rest of the text are ignored.
        """
        item = self.items[index]
        if not item.answers:
            return None
        if item.kind == ARITHMETIC:
            number = _last_number(text)
            return float(number is not None and number in map(_last_number, item.answers))
        words = _words(text)
        parts = [part for part in (item.answers, item.also) if part]
        return float(all(any(_words(answer) in words for answer in part) for part in parts))


def kind_words(items: Iterable[Item]) -> str:
    """The number of items of each kind, in words: "70 about a taught skill and 110 about a fact"."""
    counts = Counter(item.kind for item in items)
    return joined([f"{count} {_KIND_WORDS.get(kind, kind)}" for kind, count in counts.items()])


def load_items(source: str = BUILT_IN, limit: int = 0) -> Items:
    """The project's items, or those of a file with a JSON object {"prompt": ...} on each line.

    A line may also have "answers" (a list of texts), "also" (a list of answers to a second question), "kind" (by default "text"),
    "raw" and "key" (by default "line-7" and so on). Empty lines are ignored.

    Args:
        source: "built-in", "skills", or the path of the file.
        limit: takes this many from the start; 0 takes all.

    Raises:
        RequestError: the file cannot be read, has no items, or has an invalid line.
    """
    path = _OWN.get(source) or Path(source)
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, ValueError) as error:
        raise RequestError(
            f"The file of items cannot be read as UTF-8 text; give the path of one, or “{BUILT_IN}”."
        ) from error
    items = [_item(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not items:
        raise RequestError('The file of items is empty; it needs a JSON object {"prompt": ...} on each line.')
    kinds: dict[str, list[Item]] = {}
    for item in items:
        kinds.setdefault(item.kind, []).append(item)
    alternating = [item for turn in zip_longest(*kinds.values()) for item in turn if item]
    return Items(source if source in _OWN else path.name, tuple(alternating[: limit or None]))


def _item(number: int, line: str) -> Item:
    where = f"Line {number} of the file of items"
    try:
        record = {"key": f"line-{number}", "kind": "text", "answers": [], "also": []} | json.loads(line)
        lists = {name: tuple(record[name]) for name in ("answers", "also") if isinstance(record[name], list)}
        item = Item(**record | lists)
    except (ValueError, TypeError, RecursionError) as error:
        names = ", ".join(each.name for each in fields(Item))
        raise RequestError(
            f'{where} is no JSON object with a "prompt"; it may have the fields {names}.'
        ) from error
    texts = (item.key, item.kind, item.prompt, *item.answers, *item.also)
    if len(lists) < 2 or not isinstance(item.raw, bool) or not all(map(_is_text, texts)):
        raise RequestError(
            f'{where}: "answers" and "also" are lists, "raw" is true or false, and everything else is text with a word in it.'
        )
    if item.kind == ARITHMETIC and None in map(_last_number, item.answers):
        raise RequestError(f'{where}: each of the "answers" must be a number, written as text.')
    return item


def _is_text(value: object) -> bool:
    """Whether a value is a text with at least one word and without lone surrogates, which JSON allows."""
    return isinstance(value, str) and bool(_WORD.search(value)) and not _SURROGATE.search(value)


def _words(text: str) -> str:
    return f" {' '.join(_WORD.findall(unicodedata.normalize('NFKC', text).casefold()))} "


def _last_number(text: str) -> Decimal | None:
    found = list(_NUMBER.finditer(text))
    if not found:
        return None
    number = Decimal(found[-1]["number"].replace(",", ""))
    return -number if found[-1]["sign"] else number
