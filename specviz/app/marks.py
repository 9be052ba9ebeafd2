"""How each method is marked wherever several stand beside each other: by a colour and by a symbol, in figures and in text.

The colours are tokens of `static/shared/shared.css`. Knows the methods' names; draws nothing.
"""

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
"""The symbols of the paper's nine methods, as plotly calls them and as characters; both models alone have open ones."""
_OTHERS = (
    ("pentagon", "⬟"),
    ("hexagon", "⬢"),
    ("cross", "✚"),
    ("x", "✖"),
    ("hourglass", "⧗"),
    ("bowtie", "⧓"),
    ("triangle-ne", "◥"),
)
"""Those of all others, by turns."""
_SHADES = 3
"""How many colours these have, by turns."""


def method_symbol(name: str) -> tuple[str, str]:
    """A method's symbol, as plotly calls it and as a character."""
    return SYMBOLS.get(name) or _OTHERS[_turn(name) % len(_OTHERS)]


def method_token(name: str) -> str:
    """The token of a method's colour."""
    return f"method-{name}" if name in SYMBOLS else f"method-other-{_turn(name) % _SHADES}"


def method_colour(name: str, theme: str = "light") -> str:
    """A method's colour in a theme, "light" or "dark"."""
    return colours(theme)[method_token(name)]


def _turn(name: str) -> int:
    """Which of the methods without a mark of its own it is."""
    return [other for other in METHODS if other not in SYMBOLS].index(name)
