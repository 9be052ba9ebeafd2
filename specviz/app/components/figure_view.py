"""A figure whose points can be chosen. `static/figure_view/` draws it with Plotly, lists its points and saves it, in the browser.

Its value is one JSON string, which is replaced as a whole. This module does not depend on what the figure shows.
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
        figure: a Plotly figure. Traces of points have the points' indices as `customdata` and their titles as `text`. `meta` is
            "faint" for parts that stay faint until they are chosen, and "key" for parts that explain a symbol.
        csv: the table to download.
        name: stem of the files to download.
        key: identifies what is shown. The point stays chosen as long as the key does not change.
        finding: sentences that say what the figure shows. The first is the headline, and the title of saved pictures.
        source: source of the figure, for saved pictures.
        about: pairs of a term and its meaning, which say what was measured; folded away.
        said: a line below the figure.
        failure: an error, shown above the figure.
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

    `figure_value` makes the value; "" is the empty view. `select` events carry the chosen point: `index` from
    its trace's `customdata`, `value` from its `text`.
    """

    TEMPLATE = template("figure_view/figure_view")
    CSS = style(("shared/shared", "figure_view/figure_view"))
    MODULE = "figure_view/figure_view"

    def __init__(self, value: str = "", *, dark: Mapping[str, str], **kwargs: Any) -> None:
        """Make a view; `dark` maps colours of the figure to those on a dark page."""
        super().__init__(value, plotly_address=plotly_address(), dark=dict(dark), **kwargs)

    def preprocess(self, payload: str | None) -> str:
        """Discard the value, which the server does not need."""
        return ""
