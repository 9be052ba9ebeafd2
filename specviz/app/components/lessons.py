"""What explains the methods without a model: the playground and the guided tour.

Everything is computed in the browser, by `static/playground/` and `static/tour/`. This module handles no event and computes
nothing.
"""

from __future__ import annotations

from typing import Any

from specviz.app.components.scripted_html import ScriptedHTML, method_words, style, template

_STYLES = ("shared/shared", "playground/playground")


class Lesson(ScriptedHTML):
    """A component that has the methods' words, no value, and sends nothing."""

    def __init__(self, **kwargs: Any) -> None:
        """Make one; `kwargs` as for `ScriptedHTML`."""
        super().__init__(methods=method_words(), **kwargs)


class Playground(Lesson):
    """Six words, two distributions to drag, and what each of the methods makes of them."""

    TEMPLATE = template("playground/playground")
    CSS = style(_STYLES)
    MODULE = "playground/playground"


class Tour(Lesson):
    """Cards with a question, one control to move, and an answer to uncover; they are in `static/tour/tour.js`."""

    TEMPLATE = '<div class="specviz st-tour"></div>'
    CSS = style((*_STYLES, "tour/tour"))
    MODULE = "tour/tour"
