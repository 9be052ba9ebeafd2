"""A link that carries settings: which names its query has, and what the query of an opened link asks for.

A query is written by anybody: every value is checked against the registries and the ranges that the page offers, and
what does not fit is left out with a sentence that repeats none of it. Knows no control and no page; opening a link
never runs anything.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from specviz.analysis.recorded_runs import read_recorded_runs
from specviz.app.settings import CONTROLS, Control
from specviz.core.methods import METHODS, OWN_RULE, get_method
from specviz.errors import RuleError
from specviz.schema.settings import AUTO, DEFAULT_METHOD, MAX_DRAFT_LENGTH
from specviz.serving.offer import offered_pairs

TABS = ("idea", "generate", "compare", "tradeoff", "learn")
OLD_TABS = {"replay": "generate", "playground": "learn", "tour": "learn", "lessons": "learn"}
"""Where what these tabs had is now."""
LEARN_TABS = {"tour": "lessons", "lessons": "lessons", "playground": "playground"}
"""What the tab Learn has, by what links name as a tab."""
NAMES = {"pair": "pair", "prompt": "prompt", "run": "run"} | {
    each.query: each.name for each in CONTROLS.values() if each.query
}
"""The names in a query, and what they set ("run" is the key of a recorded run); beside them `tab`, `lesson` (whose
`step` and `language` the browser reads), and `pane` as often as there are panes."""

MAX_PROMPT = 4000
"""Characters of a prompt that a link may carry."""
PANES = (2, 3, 4)
"""How many runs may stand side by side."""
DRAFT_LENGTHS = (AUTO, *range(1, MAX_DRAFT_LENGTH + 1))
"""What a draft length may be; the first one is what a control begins with."""

_NUMBER = re.compile(r"-?[0-9]{1,12}([.][0-9]{1,20})?")


@dataclass(frozen=True)
class Pane:
    """One pane of a comparison."""

    method: str
    lenience: float
    draft_length: int | Literal["auto"] = AUTO


@dataclass(frozen=True)
class Link:
    """What a link asks for: only what it names, and only what is sound. `problems` are sentences about the rest, `part` is
    what the tab Learn shows."""

    tab: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    panes: tuple[Pane, ...] = ()
    problems: tuple[str, ...] = ()
    part: str | None = None

    @property
    def compares(self) -> bool:
        """Whether the settings are meant for the tab Compare."""
        return self.tab == "compare" or bool(self.panes)


def ranged(most_tokens: int | None = None) -> dict[str, Control]:
    """The settings that controls and links range over, where a text may have so many tokens; in the order of the controls."""
    found = {name: each for name, each in CONTROLS.items() if each.offered}
    found["seed"] = found.pop("seed")  # last, beside its button
    if most_tokens is not None:
        tokens = found["max_new_tokens"]
        low, default = min(tokens.offered[0], most_tokens), min(tokens.default, most_tokens)
        found["max_new_tokens"] = replace(tokens, offered=(low, most_tokens), default=default)
    return found


class _UnfitError(ValueError):
    """A value that is left out; its message is what would be right."""


def parse_link(
    query: Iterable[tuple[str, str]], most_tokens: int | None = None, lessons: Collection[str] = ()
) -> Link:
    """Read the query of an opened link, in order; names that are not the page's own are passed over.

    `most_tokens` are those that a text may have here, `lessons` the names of those there are.
    """
    offered = ranged(most_tokens)
    given: dict[str, list[str]] = {}
    for name, value in query:
        if name in NAMES or name in ("tab", "pane", "lesson"):
            given.setdefault(name, []).append(value)
    problems: list[str] = []
    found: dict[str, Any] = {}
    # A lenience is judged by its method: after it.
    for name in sorted(given, key=lambda name: name == "lenience"):
        try:
            usual = OWN_RULE if "rule" in given else DEFAULT_METHOD
            method = found.get("method", None if "method" in given else usual)
            found[name] = _read(name, given[name], method, offered, lessons)
        except _UnfitError as unfit:
            problems.append(f"The link’s “{name}” was left out: {unfit}.")
    if "rule" in found and found.setdefault("method", OWN_RULE) != OWN_RULE:
        problems.append(f"The link’s “rule” was left out: it is for the method {OWN_RULE}.")
        del found["rule"]
    settings = {NAMES[name]: value for name, value in found.items() if name in NAMES}
    if "lesson" in found:
        return Link("learn", settings, found.get("pane", ()), tuple(problems), "lessons")
    part = next(
        (LEARN_TABS[name] for name in given.get("tab", ()) if name in LEARN_TABS and "tab" in found), None
    )
    return Link(found.get("tab"), settings, found.get("pane", ()), tuple(problems), part)


def _read(
    name: str,
    values: list[str],
    method: str | None,
    offered: Mapping[str, Control],
    lessons: Collection[str],
) -> Any:
    if name == "pane":
        return _panes(values)
    if len(values) > 1:
        raise _UnfitError("it is given more than once")
    value = values[0]
    if name == "tab":
        return OLD_TABS.get(value) or _one_of(value, TABS)
    if name == "lesson":
        return _one_of(value, lessons)
    if name == "run":
        return _one_of(value, [run.key for run in read_recorded_runs().runs])
    if name in ("pair", "method"):
        return _one_of(value, offered_pairs()) if name == "pair" else _method(value)
    if name == "prompt":
        return _prompt(value)
    if name == "rule":
        return _rule(value)
    if name == "lenience":
        return _lenience(value, method)
    if name == "k":
        return _draft_length(value)
    return _number(offered[NAMES[name]], value)


def _one_of(value: str, known: Iterable[str]) -> str:
    if value not in known:
        raise _UnfitError(f"it must be one of {', '.join(known)}")
    return value


def _method(value: str) -> str:
    if value not in METHODS:
        raise _UnfitError("there is no such method")
    return value


def _rule(value: str) -> str:
    try:
        get_method(OWN_RULE, value)
    except RuleError as error:
        raise _UnfitError(f"it is no rule, from character {error.position + 1} on") from error
    return value


def _prompt(value: str) -> str:
    if not value.strip():
        raise _UnfitError("it is empty")
    if len(value) > MAX_PROMPT:
        raise _UnfitError(f"a link may carry {MAX_PROMPT} characters of prompt")
    return value


def _number(control: Control, value: str) -> float:
    low, high = control.offered
    whole = control.setting.is_whole
    if not _NUMBER.fullmatch(value) or not low <= float(value) <= high or (whole and "." in value):
        raise _UnfitError(f"it must be a {'whole number' if whole else 'number'} from {low:g} to {high:.10g}")
    return int(value) if whole else float(value)


def _draft_length(value: str) -> int | Literal["auto"]:
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
    name = _method(parts[0])
    return Pane(name, _lenience(parts[1], name), _draft_length(parts[2]))
