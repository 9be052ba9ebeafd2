"""A figure whose points can be chosen: drawn by Plotly, listed, and saved, in the browser by `static/figure_view/`.

Its value is one JSON string, replaced whole. This module does not know what the figure shows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from specviz.app.components.scripted_html import (
    ScriptedHTML,
    plotly_address,
    style,
    template,
)


def figure_value(
    figure: go.Figure | None = None,
    *,
    csv: str = "",
    name: str = "figure",
    key: str = "",
    finding: Sequence[str] = (),
    source: str = "",
    about: Sequence[Sequence[str]] = (),
    said: str = "",
    failure: str = "",
) -> str:
    """The value of a `FigureView`.

    Args:
        figure: its traces of points have the points' indices as `customdata` and their titles as `text`. What is to be faint
            until it is asked for has "faint" as `meta`, what explains a symbol "key".
        csv: the table to download.
        name: stem of the files to download.
        key: identifies what is shown: the chosen point is kept as long as the key stays.
        finding: what the figure shows, in sentences: the first is its headline, and the title of saved pictures.
        source: where it comes from, for saved pictures.
        about: what it rests on, each as a word and what it means; folded away.
        said: a line below the figure.
        failure: a sentence above the figure about what went wrong.
    """
    shown = None if figure is None else json.loads(figure.to_json())
    value = {
        "figure": shown,
        "csv": csv,
        "name": name,
        "key": key,
        "finding": list(finding),
        "source": source,
    }
    value |= {"about": [list(each) for each in about], "said": said, "failure": failure}
    return json.dumps(value, ensure_ascii=False)


class FigureView(ScriptedHTML):
    """Shows a figure and lets its points be chosen.

    The value is what `figure_value` makes; "" is the empty view. `select` events carry the chosen point: `index` from
    its trace's `customdata`, `value` from its `text`.
    """

    TEMPLATE = template("figure_view/figure_view")
    CSS = style(("shared/shared", "figure_view/figure_view"))
    MODULE = "figure_view/figure_view"

    def __init__(self, value: str = "", *, dark: Mapping[str, str], **kwargs: Any) -> None:
        """Make a view; `dark` maps colours of the figure to those on a dark page."""
        super().__init__(value, plotly_address=plotly_address(), dark=dict(dark), **kwargs)

    def preprocess(self, payload: str | None) -> str:
        """Nothing: the server needs none of it."""
        return ""
