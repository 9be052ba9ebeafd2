"""The bar at the top of the page: its name, and switches for larger text and for the theme; drawn by `static/page/bar.js`."""

from __future__ import annotations

from specviz.app.components.scripted_html import ScriptedHTML, style, template


class Bar(ScriptedHTML):
    """Shows the name on the left and two switches on the right, with gradio's tabs between them."""

    TEMPLATE = template("page/bar")
    CSS = style(("shared/shared", "page/bar"))
    MODULE = "page/bar"
