"""The page's colours, which are variables of `static/shared/shared.css`; the colour and the symbol of each method, and the menu of methods."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from specviz.core.methods import METHODS, OWN_RULE, PAPER

_SHEET = Path(__file__).parent / "static/shared/shared.css"
_BLOCKS = {"light": r"\.specviz \{", "dark": r'\.specviz\[data-theme="dark"\] \{'}


@cache
def colours(theme: str) -> dict[str, str]:
    """The colours of a theme, "light" or "dark", by the names of their variables without `--sv-`."""
    block = re.search(
        rf"^{_BLOCKS[theme]}(.*?)^\}}", _SHEET.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    assert block
    return dict(re.findall(r"--sv-([\w-]+): (#[0-9a-fA-F]{6});", block[1]))


SYMBOLS: dict[str, tuple[str, str]] = {
    "speed": ("circle", "●"),
    "cascade_chow": ("square", "■"),
    "cascade_diff": ("diamond", "◆"),
    "cascade_opt": ("triangle-up", "▲"),
    "cascade_tokenV1": ("triangle-down", "▼"),
    "cascade_tokenV2": ("triangle-left", "◄"),
    "cascade_tokenV3": ("triangle-right", "►"),
    "drafter_only": ("square-open", "□"),
    "verifier_only": ("diamond-open", "◇"),
}
"""Symbols of the paper's nine methods: a name in `static/shared/chart.js`, and a character. The two baselines have open symbols."""
_OTHERS = (
    *(("pentagon", "⬟"), ("hexagon", "⬢"), ("cross", "✚"), ("x", "✖"), ("hourglass", "⧗"), ("bowtie", "⧓")),
    *(("triangle-ne", "◥"), ("triangle-sw", "◣"), ("triangle-nw", "◤"), ("triangle-se", "◢")),
    *(("bar", "▬"), ("pillar", "▮")),
)
"""Symbols of the methods that `SYMBOLS` lacks, assigned in turn."""
_SHADES = sum(name.startswith("method-other-") for name in colours("light"))
"""Number of colours for the methods that `SYMBOLS` lacks, assigned in turn: enough for SpecViz's methods and two registered
methods. It has no common divisor with the length of `_OTHERS`, so that further methods still get distinct marks."""


def method_symbol(name: str) -> tuple[str, str]:
    """A method's symbol: its name in `static/shared/chart.js`, and a character."""
    return SYMBOLS.get(name) or _OTHERS[_turn(name) % len(_OTHERS)]


def method_token(name: str) -> str:
    """The name of a method's colour in `colours`."""
    return f"method-{name}" if name in SYMBOLS else f"method-other-{_turn(name) % _SHADES}"


def chart_marks() -> dict[str, dict[str, str]]:
    """What `static/shared/chart.js` needs of each method, by the method's name: title, symbol and colour."""
    return {
        name: {"title": method.title, "symbol": method_symbol(name)[0], "colour": method_token(name)}
        for name, method in METHODS.items()
    }


def _turn(name: str) -> int:
    """A method's index among the methods that `SYMBOLS` lacks."""
    return [other for other in METHODS if other not in SYMBOLS].index(name)


_USUAL = ("speed", "cascade_tokenV3", "cascade_chow", "verifier_only")
"""The methods in the first group of the menu."""


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
