"""The tab Tour: cards with a question, one control to move, and an answer to uncover.

The cards are in `static/tour.js` and compute their numbers with `static/methods.js`, in the browser. This module
knows which files make up the component; it handles no event and computes nothing.
"""

from __future__ import annotations

from typing import Any

import gradio as gr

from specviz.app.components.bundle import script, style
from specviz.app.tabs import playground

SCRIPTS = (*playground.SCRIPTS, "tour")
"""The files in `static/` that make up the script, in order."""
JS = script(SCRIPTS, ("createTour", "followTheme"))
"""The script; defines `SpecViz.createTour(host, {methods})`, see the file."""
CSS = style(("view", "playground", "tour"))
TEMPLATE = '<div class="specviz st-tour"></div>'

_GLUE = """
element.parentElement.style.padding = 0; // gradio pads this box even where `padding` is false
const host = element.querySelector(".specviz");
SpecViz.followTheme(host);
SpecViz.createTour(host, { methods: props.methods });
"""


class Tour(gr.HTML):
    """The guided tour; it has no value and sends nothing."""

    def __init__(self, **kwargs: Any) -> None:
        """Make a tour; `kwargs` are what `gr.HTML` takes beside template, style and script."""
        super().__init__(
            html_template=TEMPLATE,
            css_template=CSS,
            js_on_load=JS + _GLUE,
            apply_default_css=False,
            methods=playground.method_words(),
            **kwargs,
        )


def tour_tab() -> None:
    """Fill the tab, inside the caller's `gr.Tab`."""
    Tour(elem_id="tour")
