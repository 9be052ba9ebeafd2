"""How each method is marked wherever several stand beside each other: by a colour and by a symbol, in figures and in text.

The colours are tokens of `static/shared/shared.css`. Knows the methods' names; draws nothing.
"""

from __future__ import annotations

from specviz.app.tokens import colours

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
"""The method's symbol, as plotly calls it and as a character; both models alone have open ones."""


def method_colour(name: str, theme: str = "light") -> str:
    """A method's colour in a theme, "light" or "dark"."""
    return colours(theme)[f"method-{name}"]
