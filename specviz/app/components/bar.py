"""The bar above all places: the name, larger text, light or dark. Drawn by `static/page/bar.js`; knows no place."""

from __future__ import annotations

from specviz.app.components.scripted_html import ScriptedHTML, style, template


class Bar(ScriptedHTML):
    """The name at the left end and two switches at the right; the places between them are gradio's own tabs."""

    TEMPLATE = template("page/bar")
    CSS = style(("shared/shared", "page/bar"))
    MODULE = "page/bar"
