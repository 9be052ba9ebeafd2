"""Reads the query of a link that carries settings.

Anybody can write a query, so every value is checked against the registries and the ranges of the page. An invalid value is ignored
and reported in a sentence that does not repeat it. Opening a link does not start a run.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal
from urllib.parse import urlencode

from specviz.analysis.recorded_runs import read_recorded_runs
from specviz.app.settings import CONTROLS, Control
from specviz.core.methods import METHODS, OWN_RULE, get_method
from specviz.errors import RuleError
from specviz.models.registry import PAIRS
from specviz.schema.settings import AUTO, DEFAULT_METHOD, MAX_DRAFT_LENGTH
from specviz.serving.offer import offered_pairs

TABS = ("idea", "generate", "compare", "tradeoff", "learn")
LEARN_TABS = {"tour": "lessons"} | {name: name for name in ("lessons", "playground", "pay", "wrong")}
"""Parts of the tab Learn, by the values of `tab` in a link."""
OTHER_TABS = {"replay": "generate"} | dict.fromkeys(LEARN_TABS, "learn")
"""The tabs that further values of `tab` in a link open. These values are from old links, or name parts of the tab Learn."""
NAMES = {"pair": "pair", "prompt": "prompt", "run": "run", "token": "token"} | {
    each.query: each.name for each in CONTROLS.values()
}
"""Names in a query, and the settings that they stand for: "run" is the key of a recorded run, "token" the index of the token to select in
the run. A query may also have `tab`, `lesson` (the browser reads its `step` and `language`) and a `pane` for each text of a comparison."""

MAX_PROMPT = 4000
"""Maximum length of a prompt in a link, in characters."""
PANES = (2, 3, 4)
"""Valid numbers of panes."""
DRAFT_LENGTHS = (AUTO, *range(1, MAX_DRAFT_LENGTH + 1))
"""The choices of a draft length, the default first."""

_NUMBER = re.compile(r"-?[0-9]{1,12}([.][0-9]{1,20})?(e-[0-9]{1,3})?")


@dataclass(frozen=True)
class Pane:
    """One pane of a comparison."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}  # unknown fields are refused

    method: str
    lenience: float
    draft_length: int | Literal["auto"] = AUTO
    pair: str | None = None
    """Key of a pair; None stands for the pair of the whole comparison."""


@dataclass(frozen=True)
class Link:
    """The valid settings that a link names.

    Attributes:
        tab: the tab to open, to which the settings belong; None if the link names neither a tab nor settings.
        problems: sentences about values that were ignored.
        part: the part of the tab Learn to open, or None.
    """

    tab: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    panes: tuple[Pane, ...] = ()
    problems: tuple[str, ...] = ()
    part: str | None = None


def ranged(most_tokens: int | None = None) -> dict[str, Control]:
    """The controls that have a range, by setting; the seed comes last. `most_tokens` is the upper bound of `max_new_tokens`."""
    found = {name: each for name, each in CONTROLS.items() if each.offered}
    found["seed"] = found.pop("seed")  # last, next to its button
    if most_tokens is not None:
        tokens = found["max_new_tokens"]
        low = min(tokens.offered[0], most_tokens - 1)  # a slider needs two numbers
        default = min(tokens.default, most_tokens)
        found["max_new_tokens"] = replace(tokens, offered=(low, most_tokens), default=default)
    return found


def query_of(tab: str, settings: Mapping[str, Any], panes: Iterable[Iterable[Any]] = ()) -> str:
    """The query from which `parse_link` reads these settings. Each of `panes` has the fields of `Pane`, in order."""
    named = [(name, settings[setting]) for name, setting in NAMES.items() if setting in settings]
    parts = [("pane", ":".join(map(str, pane))) for pane in panes]
    return "?" + urlencode([("tab", tab), *named, *parts])


class _UnfitError(ValueError):
    """A value is invalid and will be ignored; the message says what would be valid."""


def parse_link(
    query: Iterable[tuple[str, str]], most_tokens: int | None = None, lessons: Collection[str] = ()
) -> Link:
    """Read the names and values of a query; unknown names are ignored.

    Args:
        query: pairs of name and value, in order.
        most_tokens: this server's limit on the tokens of a text.
        lessons: names of the lessons on this server.
    """
    offered = ranged(most_tokens)
    given: dict[str, list[str]] = {}
    for name, value in query:
        if name in NAMES or name in ("tab", "pane", "lesson"):
            given.setdefault(name, []).append(value)
    problems: list[str] = []
    found: dict[str, Any] = {}
    # The lenience comes last: its range depends on the method.
    for name in sorted(given, key=lambda name: name == "lenience"):
        usual = OWN_RULE if "rule" in given else DEFAULT_METHOD
        method = found.get("method", None if "method" in given else usual)
        try:
            found[name] = _read(name, given[name], method, offered, lessons)
        except _UnfitError as unfit:
            problems.append(f"The link’s “{name}” was ignored: {unfit}.")
    if "rule" in found:
        found.setdefault("method", OWN_RULE)
    settings = {NAMES[name]: value for name, value in found.items() if name in NAMES}
    panes = found.get("pane", ())
    tab = "compare" if panes else found.get("tab", "generate" if settings else None)
    part = LEARN_TABS.get(given["tab"][-1]) if "tab" in found else None
    if "lesson" in found:
        tab, part = "learn", "lessons"
    return Link(tab, settings, panes, tuple(problems), part)


def _read(
    name: str,
    values: list[str],
    method: str | None,
    offered: Mapping[str, Control],
    lessons: Collection[str],
) -> Any:
    if name == "pane":
        if len(values) not in PANES:
            raise _UnfitError(f"there must be {PANES[0]} to {PANES[-1]} of them")
        return tuple(map(_pane, values))
    value = values[-1]
    match name:
        case "tab":
            return OTHER_TABS.get(value) or _one_of(value, TABS)
        case "lesson":
            return _one_of(value, lessons)
        case "run":
            return _one_of(value, [run.key for run in read_recorded_runs().runs])
        case "token":
            return _number(value, 0, 10_000, is_whole=True)
        case "pair":
            return _one_of(value, offered_pairs())
        case "method":
            return _one_of(value, METHODS)
        case "lenience":
            return _lenience(value, method)
        case "k":
            return _draft_length(value)
        case "prompt":
            if not 0 < len(value.strip()) <= len(value) <= MAX_PROMPT:
                raise _UnfitError(f"it must have 1 to {MAX_PROMPT} characters")
            return value
        case "rule":
            try:
                get_method(OWN_RULE, value)
            except RuleError as error:
                raise _UnfitError(f"it is not a valid rule: see character {error.position + 1}") from error
            return value
    control = offered[NAMES[name]]
    return _number(value, *control.offered, is_whole=control.setting.is_whole)


def _one_of(value: str, known: Iterable[str]) -> str:
    if value not in known:
        raise _UnfitError("nothing here has this name")
    return value


def _number(value: str, low: float, high: float, *, is_whole: bool = False) -> float:
    if (
        not _NUMBER.fullmatch(value)
        or not low <= float(value) <= high
        or (is_whole and not value.lstrip("-").isdigit())
    ):
        raise _UnfitError(
            f"it must be a {'whole number' if is_whole else 'number'} from {low:g} to {high:.10g}"
        )
    return int(value) if is_whole else float(value)


def _lenience(value: str, method: str | None) -> float:
    if method is None:
        raise _UnfitError("its method is not known")
    return _number(value, *METHODS[method].offered_range) if METHODS[method].has_lenience else 0.0


def _draft_length(value: str) -> int | Literal["auto"]:
    return AUTO if value == AUTO else int(_number(value, 1, MAX_DRAFT_LENGTH, is_whole=True))


def _pane(value: str) -> Pane:
    method, *parts = value.split(":")
    if len(parts) not in (2, 3):
        raise _UnfitError(
            "each must be method:lenience:draft length, such as speed:0:auto, and may end with :pair"
        )
    lenience, draft_length, *pairs = parts
    name = _one_of(method, METHODS)
    # A recorded comparison may be of a pair that is not offered here.
    pair = _one_of(pairs[0], PAIRS | offered_pairs()) if pairs else None
    return Pane(name, _lenience(lenience, name), _draft_length(draft_length), pair)
