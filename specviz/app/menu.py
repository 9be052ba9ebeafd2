"""The menu of methods, in groups, the usual methods first. CSS draws the groups' headings, since gradio's lists have none."""

from __future__ import annotations

import json

from specviz.core.methods import METHODS, OWN_RULE, PAPER

_USUAL = ("speed", "cascade_tokenV3", "cascade_chow", "verifier_only")


def method_menu() -> dict[str, list[str]]:
    """The names of all methods by the heading of their group, in the order of the menu."""
    groups: dict[str, list[str]] = {}
    for name in dict.fromkeys((*_USUAL, *METHODS)):
        groups.setdefault(_heading(name), []).append(name)
    return groups


def _heading(name: str) -> str:
    if name in _USUAL:
        return "To begin with"
    if name in PAPER:
        return "Others in the paper"
    return "Your own" if name == OWN_RULE else "Later methods"


def menu_style(elem_id: str) -> str:
    """CSS that shows each group's heading above its first method. While a dropdown is filtered, headings may be missing."""
    rules = []
    for heading, (first, *_) in method_menu().items():
        at = f"#{elem_id} .options li[aria-label={_quoted(METHODS[first].label)}]"
        rules.append(f"{at} {{ margin-top: 1.9rem; }}\n{at}::before {{ content: {_quoted(heading)}; }}")
    return "\n".join(rules)


def _quoted(text: str) -> str:
    """A CSS string."""
    return json.dumps(text, ensure_ascii=False)
