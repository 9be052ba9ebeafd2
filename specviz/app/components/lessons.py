"""What explains the methods without a model: the playground and the guided tour.

Everything is computed in the browser, by `static/playground/` and `static/tour/`. This module handles no event and computes
nothing.
"""

from __future__ import annotations

from typing import Any

from specviz.app.components.scripted_html import ScriptedHTML, method_words, script, style, template
from specviz.compat.gradio import UNCLIPPED

_STYLES = ("shared/shared", "playground/playground")
_SCRIPTS = (
    *("shared/dom", "shared/theme"),
    *(f"playground/{name}" for name in ("methods", "controls", "displays", "playground")),
)
_FIND_HOST = """
const host = element.querySelector(".specviz");
SpecViz.followTheme(host);
"""


class Lesson(ScriptedHTML):
    """A component that has the methods' words, no value, and sends nothing."""

    def __init__(self, **kwargs: Any) -> None:
        """Make one; `kwargs` as for `ScriptedHTML`."""
        super().__init__(methods=method_words(), **kwargs)


class Playground(Lesson):
    """Six words, two distributions to drag, and what each of the nine methods makes of them."""

    TEMPLATE = template("playground/playground")
    CSS = style(_STYLES)
    JS = script(
        _SCRIPTS,
        (
            *("createPlayground", "followTheme"),
            *("distributions", "ruling", "coinsOf", "simulate", "withProbability"),
        ),
    )
    """Defines `SpecViz.createPlayground(host, {methods, …})`, see `playground.js`."""
    # On a phone the figures stay in sight above the bars.
    MOUNT = f"""
if (matchMedia("(max-width: 768px)").matches) {UNCLIPPED}
{_FIND_HOST}
SpecViz.createPlayground(host, {{ methods: props.methods }});
"""


class Tour(Lesson):
    """Cards with a question, one control to move, and an answer to uncover; they are in `static/tour/tour.js`."""

    TEMPLATE = '<div class="specviz st-tour"></div>'
    CSS = style((*_STYLES, "tour/tour"))
    JS = script((*_SCRIPTS, "tour/tour"), ("createTour", "followTheme"))
    """Defines `SpecViz.createTour(host, {methods})`, see `tour.js`."""
    MOUNT = f"{_FIND_HOST}SpecViz.createTour(host, {{ methods: props.methods }});\n"
