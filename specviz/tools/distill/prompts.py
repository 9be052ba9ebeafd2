"""Prompts: held-out prompts for measuring, and prompts made from templates for training.

There are seven kinds: facts, stories, code, arithmetic, lists, rewriting, dialogue.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator

from specviz.analysis.sweep.items import load_items
from specviz.resources import ASSETS

_FILE = ASSETS / "prompts.json"
_SLOT = re.compile(r"\{([^{}]+)\}")
_REPEATED = ("name", "items")
"""Slots that have the same word everywhere in a prompt. Other slots for words get a different word at each occurrence."""
_NEAR = 0.75
"""A made prompt is too similar to a held-out prompt if their common words are at least this share of the longer prompt's words."""


def held_out_by_kind() -> dict[str, list[str]]:
    """Prompts that no drafter is trained on, by kind."""
    return _read()["held_out"]


def held_out_prompts() -> list[str]:
    """Prompts that no drafter is trained on."""
    return [prompt for kind in held_out_by_kind().values() for prompt in kind]


def made_prompts(draw: random.Random) -> Iterator[str]:
    """Yield endless distinct prompts, kinds equally often. None is similar to a held-out prompt or part of a built-in question."""
    made = _read()
    kinds = list(made["templates"].values())
    held_out = [_words(prompt) for prompt in held_out_prompts()]
    questions = [item.prompt.lower() for item in load_items().items]
    seen = set[str]()
    while True:
        prompt = _fill(draw.choice(draw.choice(kinds)), made["words"], draw)
        if prompt in seen or any(prompt.lower() in question for question in questions):
            continue
        words = _words(prompt)
        if any(len(words & other) >= _NEAR * max(len(words), len(other)) for other in held_out):
            continue
        seen.add(prompt)
        yield prompt


def _read() -> dict[str, dict[str, list[str]]]:
    """Held-out prompts and templates by kind, and words by slot."""
    found: dict[str, dict[str, list[str]]] = json.loads(_FILE.read_text(encoding="utf-8"))
    return found


def _fill(template: str, words: dict[str, list[str]], draw: random.Random) -> str:
    """Fill the slots: {2..99} with a number, {a|b} with a or b, {topic} with one of the words for topics."""
    filled, used = dict[str, str](), set[str]()

    def fill(slot: re.Match[str]) -> str:
        name = slot[1]
        if numbers := re.fullmatch(r"(\d+)\.\.(\d+)", name):
            return str(draw.randint(int(numbers[1]), int(numbers[2])))
        if "|" in name:
            return draw.choice(name.split("|"))
        if name in _REPEATED and name in filled:
            return filled[name]
        filled[name] = draw.choice([word for word in words[name] if word not in used])
        used.add(filled[name])
        return filled[name]

    text = _SLOT.sub(fill, template)
    return text[0].upper() + text[1:]


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z0-9]+", text.lower()))
