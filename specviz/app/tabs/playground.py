"""The tab Playground: six words, two distributions to drag, and what each of the nine methods makes of them.

Everything is computed in the browser, by `static/methods.js`. This module knows the registry of methods and which
files make up the component; it handles no event and computes nothing.
"""

from __future__ import annotations

from typing import Any

import gradio as gr

from specviz.app.components.bundle import script, style
from specviz.core.methods import METHODS

SCRIPTS = ("words", "theme", "methods", "playground")
"""The files in `static/` that make up the script, in order."""
EXPORTS = ("createPlayground", "followTheme", "beliefs", "ruling", "coinsOf", "simulate", "withProbability")
JS = script(SCRIPTS, EXPORTS)
"""The script; defines `SpecViz.createPlayground(host, {methods, …})`, see the file."""
CSS = style(("view", "playground"))
TEMPLATE = """<div class="specviz sp-play">
  <p class="sp-intro">A sentence begins <q>The capital of Australia is …</q>, and six words could follow. Set what the
  <b>drafter</b> (q) and the <b>verifier</b> (p) believe, choose a method, and see what it emits (π) and how often it
  keeps the drafter’s proposal.</p>
</div>"""

_GLUE = """
element.parentElement.style.padding = 0; // gradio pads this box even where `padding` is false
// On a phone the figures stay in sight above the bars, which gradio's "hidden" would prevent.
if (matchMedia("(max-width: 768px)").matches) element.closest(".gradio-container").style.overflow = "clip";
const host = element.querySelector(".specviz");
SpecViz.followTheme(host);
SpecViz.createPlayground(host, { methods: props.methods });
"""


def method_words() -> dict[str, dict[str, Any]]:
    """What the browser is told of each method: its words, the range of its lenience and the names of the ends."""
    words = ("title", "formula", "sentence", "score_label", "threshold_label", "default_lenience")
    return {
        name: {word: getattr(method, word) for word in words}
        | {"range": list(method.offered_range), "ends": [method.strict_end, method.drafter_end]}
        for name, method in METHODS.items()
    }


class Playground(gr.HTML):
    """The playground; it has no value and sends nothing."""

    def __init__(self, **kwargs: Any) -> None:
        """Make a playground; `kwargs` are what `gr.HTML` takes beside template, style and script."""
        super().__init__(
            html_template=TEMPLATE,
            css_template=CSS,
            js_on_load=JS + _GLUE,
            apply_default_css=False,
            methods=method_words(),
            **kwargs,
        )


def playground_tab() -> None:
    """Fill the tab, inside the caller's `gr.Tab`."""
    Playground(elem_id="playground")
