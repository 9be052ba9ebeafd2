"""A link that carries settings: which names its query has, and what the query of an opened link asks for.

A query is written by anybody: every value is checked against the registries and the ranges that the page offers, and
what does not fit is left out with a sentence that repeats none of it. Knows no control and no page; opening a link
never runs anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from specviz.app.offered import DRAFT_LENGTHS, MAX_PROMPT, PANES, RANGES, Range
from specviz.core.methods import METHODS
from specviz.schema.settings import AUTO, Request
from specviz.serving.offer import offered_pairs

TABS = ("generate", "compare", "tradeoff", "replay", "playground", "tour")
NAMES = {
    "pair": "pair",
    "prompt": "prompt",
    "method": "method",
    "lenience": "lenience",
    "k": "draft_length",
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "tokens": "max_new_tokens",
    "seed": "seed",
}
"""The names in a query, and what they set; beside them `tab`, and `pane` as often as there are panes."""

_METHOD = Request(prompt="-").method
_NUMBER = re.compile(r"-?[0-9]{1,12}([.][0-9]{1,20})?")


@dataclass(frozen=True)
class Pane:
    """One pane of a comparison."""

    method: str
    lenience: float
    draft_length: int | Literal["auto"] = AUTO


@dataclass(frozen=True)
class Link:
    """What a link asks for: only what it names, and only what is sound. `problems` are sentences about the rest."""

    tab: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    panes: tuple[Pane, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def compares(self) -> bool:
        """Whether the settings are meant for the tab Compare."""
        return self.tab == "compare" or bool(self.panes)


class _UnfitError(ValueError):
    """A value that is left out; its text says what would be right."""


def parse_link(query: Iterable[tuple[str, str]], offered: Mapping[str, Range] = RANGES) -> Link:
    """Read the query of an opened link, in order; names that are not the page's own are passed over.

    `offered` are the ranges of the controls, by the names of a `Request`.
    """
    given: dict[str, list[str]] = {}
    for name, value in query:
        if name in NAMES or name in ("tab", "pane"):
            given.setdefault(name, []).append(value)
    problems: list[str] = []
    found: dict[str, Any] = {}
    # A lenience is judged by its method: after it.
    for name in sorted(given, key=lambda name: name == "lenience"):
        try:
            method = found.get("method", None if "method" in given else _METHOD)
            found[name] = _read(name, given[name], method, offered)
        except _UnfitError as unfit:
            problems.append(f"The link’s “{name}” was left out: {unfit}.")
    settings = {NAMES[name]: value for name, value in found.items() if name in NAMES}
    return Link(found.get("tab"), settings, found.get("pane", ()), tuple(problems))


def _read(name: str, values: list[str], method: str | None, offered: Mapping[str, Range]) -> Any:
    """The value of a name, checked."""
    if name == "pane":
        return _panes(values)
    if len(values) > 1:
        raise _UnfitError("it is given more than once")
    value = values[0]
    if name == "tab":
        return _one_of(value, TABS)
    if name == "pair":
        return _one_of(value, offered_pairs())
    if name == "method":
        return _one_of(value, METHODS)
    if name == "prompt":
        return _prompt(value)
    if name == "lenience":
        return _lenience(value, method)
    if name == "k":
        return _draft_length(value)
    return _number(offered[NAMES[name]], value)


def _one_of(value: str, known: Iterable[str]) -> str:
    if value not in known:
        raise _UnfitError(f"it must be one of {', '.join(known)}")
    return value


def _prompt(value: str) -> str:
    if not value.strip():
        raise _UnfitError("it is empty")
    if len(value) > MAX_PROMPT:
        raise _UnfitError(f"a link may carry {MAX_PROMPT} characters of prompt")
    return value


def _number(offered: Range, value: str) -> float:
    """A number in the range of a control."""
    if not _NUMBER.fullmatch(value) or not offered.holds(float(value)) or (offered.whole and "." in value):
        raise _UnfitError(f"it must be {offered}")
    return int(value) if offered.whole else float(value)


def _draft_length(value: str) -> int | Literal["auto"]:
    """One of the draft lengths that the control has."""
    for offered in DRAFT_LENGTHS:
        if value == str(offered):
            return offered
    raise _UnfitError(f"it must be {AUTO} or a whole number from {DRAFT_LENGTHS[1]} to {DRAFT_LENGTHS[-1]}")


def _lenience(value: str, name: str | None) -> float:
    """A lenience in the range that the slider has for a method."""
    if name is None:
        raise _UnfitError("its method is not known")
    method = METHODS[name]
    if not method.has_lenience:
        return 0.0
    low, high = method.offered_range
    if not _NUMBER.fullmatch(value) or not low <= float(value) <= high:
        raise _UnfitError(f"for {method.title} it must be a number from {low:g} to {high:g}")
    return float(value)


def _panes(values: list[str]) -> tuple[Pane, ...]:
    if len(values) not in PANES:
        raise _UnfitError(f"there must be {PANES[0]} to {PANES[-1]} of it")
    return tuple(_pane(value) for value in values)


def _pane(value: str) -> Pane:
    parts = value.split(":")
    if len(parts) != 3:
        raise _UnfitError("each must be method:lenience:draft length, such as speed:0:auto or speed:0:5")
    name = _one_of(parts[0], METHODS)
    return Pane(name, _lenience(parts[1], name), _draft_length(parts[2]))
