"""The view of a run on the page: one component that owns tokens, legend, inspector, chart and figures.

Its value is a trace as JSON lines, and grows by whole lines while a run streams. Everything that is seen is drawn
in the browser by the files in `static/`. This module knows gradio and where those files lie; it does not know what
a trace says, what the methods are, nor how a run comes about.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import gradio as gr
import plotly
from gradio.route_utils import API_PREFIX

from specviz.app.components.bundle import STATIC, script, style, template

TEMPLATE = template("template")
"""The view's markup, without any text of a run."""
STYLES = ("view", "whatif", "replay")
"""The style sheets in `static/`, in order."""
CSS = style(STYLES)
"""The view's style; nest it under an ancestor of the markup (`#page { … }`)."""
SCRIPTS = (
    *("words", "theme", "trace", "status", "text", "whatif", "inspector"),
    *("plotly", "chart", "lanes", "stage", "replay", "save", "footer", "view"),
)
"""The files in `static/` that make up the script, in order; they share one scope and nothing outside it."""
EXPORTS = ("createTraceView", "loadPlotly")
JS = script(SCRIPTS, EXPORTS)
"""The script; defines `SpecViz.createTraceView(root, {methods, plotly, onSelect})`, see the file."""
PLOTLY_JS = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
"""The one plotly.js of the project: that of the installed plotly.py."""

# What gradio runs when the component is mounted.
_GLUE = """
element.parentElement.style.padding = 0; // gradio pads this box even where `padding` is false
const view = SpecViz.createTraceView(element, {
  methods: props.methods,
  plotly: SpecViz.loadPlotly(props.plotly_address),
  onSelect: (index, value) => trigger("select", { index, value }),
  replay: props.replay,
  onReplay: props.offers_replay ? () => trigger("play") : null,
  sources: props.sources,
});
view.update(props.value);
watch("value", () => view.update(props.value));
"""


@cache
def plotly_address() -> str:
    """Where the browser finds plotly.js, relative to the page, so that a proxy's prefix does no harm.

    The first call lets gradio serve that one file, and nothing beside it.
    """
    return _served(PLOTLY_JS)


@cache
def sources() -> dict[str, str | list[str]]:
    """Where the browser finds what a saved page is made of; served like plotly.js, each file by name."""
    return {
        "template": _served(STATIC / "template.html"),
        "plotly": plotly_address(),
        "styles": [_served(STATIC / f"{name}.css") for name in STYLES],
        "scripts": [_served(STATIC / f"{name}.js") for name in SCRIPTS],
    }


def _served(file: Path) -> str:
    gr.set_static_paths([file])
    return f"{API_PREFIX.lstrip('/')}/file={quote(file.resolve().as_posix())}"


class TraceView(gr.HTML):
    """Shows one run from its trace, live or whole.

    The value is a string of JSON lines, schema "specviz-trace", versions 2 to 4; "" is the empty view. A value that begins
    with the one before it is appended to what is shown, any other value starts anew. Lines that cannot be read are
    left out and counted in the view. `select` events carry the pinned token: `index` counts from 0 over the tokens
    of the run, `value` is the token's text. `play` events ask to replay the run.
    """

    def __init__(
        self,
        value: str = "",
        *,
        methods: Mapping[str, Mapping[str, Any]],
        replay: bool = False,
        offers_replay: bool = False,
        **kwargs: Any,
    ) -> None:
        """Make a view.

        Args:
            value: the trace to begin with.
            methods: what to say of each method, by its name: "title", "formula", "sentence", "score_label" and
                "threshold_label" (such as "max q₁" and "1 − α"); the labels are None for methods without a test;
                and "range", what the what-if slider offers, [strict end, drafter's end].
            replay: show the run step by step, with a transport. A line of type "yardstick" in the value, with
                "seconds_per_token" and "machine", says what the verifier alone takes.
            offers_replay: show a button that asks for a replay, by a `play` event.
            **kwargs: what `gr.HTML` takes beside template, style and script: visible, elem_id, scale, ….
        """
        super().__init__(
            value,
            html_template=TEMPLATE,
            css_template=CSS,
            js_on_load=JS + _GLUE,
            apply_default_css=False,
            methods={name: dict(words) for name, words in methods.items()},
            plotly_address=plotly_address(),
            sources=sources(),
            replay=replay,
            offers_replay=offers_replay,
            **kwargs,
        )

    def preprocess(self, payload: str | None) -> str:
        """The trace as the browser holds it, "" if it holds none."""
        return payload or ""

    def postprocess(self, value: str | None) -> str:
        """The trace for the browser; None empties the view."""
        # Not gr.HTML's: that warns of script tags, and here the value is data that is never read as markup.
        return value or ""
