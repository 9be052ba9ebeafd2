"""A figure on the page whose points can be chosen: one component that draws it, lists its points and saves it.

Its value is one JSON string, replaced whole. Knows gradio and where the files of the script lie; does not know what
the figure shows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import gradio as gr
import plotly.graph_objects as go

from specviz.app.components import run_view as view
from specviz.app.components.bundle import script, style, template

CSS = style(("view", "replay", "figure"))
JS = script(("words", "theme", "trace", "plotly", "save", "figure"), ("createFigureView", "loadPlotly"))

# What gradio runs when the component is mounted.
_GLUE = """
element.parentElement.style.padding = 0; // gradio pads this box even where `padding` is false
const view = SpecViz.createFigureView(element, {
  plotly: SpecViz.loadPlotly(props.plotly_address),
  dark: props.dark,
  onSelect: (index, value) => trigger("select", { index, value }),
});
view.update(props.value);
watch("value", () => view.update(props.value));
"""


def figure_value(
    figure: go.Figure | None = None,
    *,
    csv: str = "",
    name: str = "figure",
    key: str = "",
    said: str = "",
    failure: str = "",
) -> str:
    """What a `FigureView` takes.

    Args:
        figure: traces of points have an index of each as `customdata` and its title as `text`.
        csv: the table to download.
        name: of the files to download, without ending.
        key: of what is shown: as long as it stays, so does the chosen point.
        said: a line below the figure.
        failure: a sentence above it, of what went wrong.
    """
    shown = None if figure is None else json.loads(figure.to_json())
    told = {"figure": shown, "csv": csv, "name": name, "key": key, "said": said, "failure": failure}
    return json.dumps(told, ensure_ascii=False)


class FigureView(gr.HTML):
    """Shows a figure and lets its points be chosen.

    The value is what `figure_value` makes; "" is the empty view. `select` events carry the chosen point: `index` from
    its trace's `customdata`, `value` from its `text`.
    """

    def __init__(self, value: str = "", *, dark: Mapping[str, str], **kwargs: Any) -> None:
        """Make a view; `dark` says which colours of the figure become which on a dark page."""
        super().__init__(
            value,
            html_template=template("figure"),
            css_template=CSS,
            js_on_load=JS + _GLUE,
            apply_default_css=False,
            plotly_address=view.plotly_address(),
            dark=dict(dark),
            **kwargs,
        )

    def preprocess(self, payload: str | None) -> str:
        """Nothing of it is needed on the server."""
        return ""

    def postprocess(self, value: str | None) -> str:
        """The value for the browser; None empties the view."""
        return value or ""  # data, never read as markup: gr.HTML would warn of script tags in it
