"""Several runs side by side on the page: one component that owns the panes, each a view of a run, and their table.

Its value is lines as `specviz.analysis.comparison` tells them, and grows by whole lines. Knows gradio and where the files of
the script lie; does not know what the lines say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gradio as gr

from specviz.app.components import run_view as view
from specviz.app.components.bundle import script, style, template

TEMPLATE = template("compare").replace("<!-- view -->", view.TEMPLATE)
"""The panes' markup, with that of one view in it to be copied."""
CSS = style((*view.STYLES, "compare"))
JS = script((*view.SCRIPTS, "compare"), ("createCompareView", "loadPlotly"))

# What gradio runs when the component is mounted.
_GLUE = """
element.parentElement.style.padding = 0; // gradio pads this box even where `padding` is false
const view = SpecViz.createCompareView(element, {
  methods: props.methods,
  plotly: SpecViz.loadPlotly(props.plotly_address),
  sources: props.sources,
});
view.update(props.value);
watch("value", () => view.update(props.value));
"""


class CompareView(gr.HTML):
    """Shows several runs, live or whole. A value that begins with the one before it is appended to what is shown."""

    def __init__(self, *, methods: Mapping[str, Mapping[str, Any]], **kwargs: Any) -> None:
        """Make a view; `methods` says of each method what `TraceView` says of it."""
        super().__init__(
            "",
            html_template=TEMPLATE,
            css_template=CSS,
            js_on_load=JS + _GLUE,
            apply_default_css=False,
            methods={name: dict(words) for name, words in methods.items()},
            plotly_address=view.plotly_address(),
            sources=view.sources(),
            **kwargs,
        )

    def preprocess(self, payload: str | None) -> str:
        """The lines as the browser holds them."""
        return payload or ""

    def postprocess(self, value: str | None) -> str:
        """The lines for the browser; None empties the view."""
        return value or ""  # data, never read as markup: gr.HTML would warn of script tags in it
