"""The colour and the symbol of each method, in figures and in text. The colours are variables of `static/shared/shared.css`."""

from __future__ import annotations

from specviz.app.tokens import colours
from specviz.core.methods import METHODS

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
"""Symbols of the paper's nine methods: the name in `static/shared/chart.js` and a character. The two baselines have open symbols."""
_OTHERS = (
    *(("pentagon", "⬟"), ("hexagon", "⬢"), ("cross", "✚"), ("x", "✖"), ("hourglass", "⧗"), ("bowtie", "⧓")),
    *(("triangle-ne", "◥"), ("triangle-sw", "◣"), ("triangle-nw", "◤"), ("triangle-se", "◢")),
    *(("bar", "▬"), ("pillar", "▮")),
)
"""Symbols of all other methods, assigned in turn."""
_SHADES = sum(name.startswith("method-other-") for name in colours("light"))
"""Number of colours for those methods, assigned in turn. There are enough for SpecViz's methods and two registered ones. The number has no
common divisor with the number of symbols, so that further methods still get distinct marks."""


def method_symbol(name: str) -> tuple[str, str]:
    """A method's symbol: the name in `static/shared/chart.js` and a character."""
    return SYMBOLS.get(name) or _OTHERS[_turn(name) % len(_OTHERS)]


def method_token(name: str) -> str:
    """The name of a method's colour."""
    return f"method-{name}" if name in SYMBOLS else f"method-other-{_turn(name) % _SHADES}"


def chart_marks() -> dict[str, dict[str, str]]:
    """What `static/shared/chart.js` needs of each method: its title, symbol and colour."""
    return {
        name: {"title": method.title, "symbol": method_symbol(name)[0], "colour": method_token(name)}
        for name, method in METHODS.items()
    }


def _turn(name: str) -> int:
    """A method's index among the methods without a symbol of their own."""
    return [other for other in METHODS if other not in SYMBOLS].index(name)
