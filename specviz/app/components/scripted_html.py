"""What the page's own components have in common: a `gr.HTML` whose DOM its script owns, made of files in `static/`.

`static/<component>/` has the files of one component, `static/shared/` those of several. Knows where the files are and
how gradio mounts them, and the methods' words; does not know what a value means nor what a script draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import gradio as gr
import plotly

from specviz.compat.gradio import UNPADDED, served_address
from specviz.core.methods import METHODS

STATIC = Path(__file__).parents[1] / "static"
PLOTLY_JS = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
"""The project's one plotly.js: that of the installed plotly package."""


def template(name: str) -> str:
    """The markup in `static/<name>.html`."""
    return _read(f"{name}.html")


def style(names: Sequence[str]) -> str:
    """The style sheets `static/<name>.css` joined in this order; to be nested under a selector (`#page { … }`)."""
    return "\n".join(_read(f"{name}.css") for name in names)


def script(names: Sequence[str], exports: Sequence[str]) -> str:
    """The scripts `static/<name>.js` joined in this order, in one scope; only `SpecViz.<export>` is visible outside."""
    head, tail = 'const SpecViz = (() => {\n"use strict";', f"return {{ {', '.join(exports)} }};\n}})();\n"
    return "\n".join([head, *(_read(f"{name}.js") for name in names), tail])


def view_script(creator: str, options: str) -> str:
    """What mounts a view: its creator among the script's exports, given plotly.js and `options`, then each value."""
    return f"""
const view = SpecViz.{creator}(element, {{
  plotly: SpecViz.loadPlotly(props.plotly_address),
  {options}
}});
view.update(props.value);
watch("value", () => view.update(props.value));
"""


def _read(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")


@cache
def plotly_address() -> str:
    """The address of plotly.js, relative to the page's own."""
    return served_address(PLOTLY_JS)


def method_words() -> dict[str, dict[str, Any]]:
    """What the browser shows of each method, by its name: its words, the range of its lenience, the names of its two ends."""
    words = ("title", "formula", "sentence", "score_label", "threshold_label", "default_lenience")
    return {
        name: {word: getattr(method, word) for word in words}
        | {"range": list(method.offered_range), "ends": [method.strict_end, method.drafter_end]}
        for name, method in METHODS.items()
    }


class ScriptedHTML(gr.HTML):
    """One component. A subclass names its markup, style and script, and the code that mounts the script.

    The value is a string for the script, never markup; None and "" are the empty component.
    """

    TEMPLATE: ClassVar[str]
    CSS: ClassVar[str]
    JS: ClassVar[str]
    MOUNT: ClassVar[str]
    """JavaScript that gradio runs once: has `element`, `props`, `trigger` and `watch`, and the script's `SpecViz`."""

    def __init__(self, value: str = "", **kwargs: Any) -> None:
        """Make a component; `kwargs` are what `gr.HTML` takes beside template, style and script, and the script's props."""
        super().__init__(
            value,
            html_template=self.TEMPLATE,
            css_template=self.CSS,
            js_on_load=self.JS + UNPADDED + self.MOUNT,
            apply_default_css=False,
            **kwargs,
        )

    def preprocess(self, payload: str | None) -> str:
        """The value as the browser has it."""
        return payload or ""

    def postprocess(self, value: str | None) -> str:
        """The value for the browser."""
        return value or ""  # gr.HTML's warns of script tags: here the value is never read as markup
