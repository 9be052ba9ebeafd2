"""The view of one run (figures, text token by token, inspector, chart, what-if slider, replay), and of several side by side.

Their values are JSON lines, and grow by whole lines while runs stream. Everything is drawn in the browser by
`static/trace_view/` and `static/compare_view/`. This module does not know what the lines say nor how a run comes about.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from specviz.app.components.scripted_html import (
    STATIC,
    ScriptedHTML,
    method_words,
    plotly_address,
    script,
    style,
    template,
    view_script,
)
from specviz.compat.gradio import served_address

STYLES = ("shared/shared", "trace_view/trace_view", "trace_view/what_if", "trace_view/replay")
"""Its style sheets in `static/`, in order."""
_PARTS = [
    "status",
    "text",
    "what_if",
    "inspector",
    "chart",
    "lanes",
    "stage",
    "replay",
    "save",
    "footer",
    "trace_view",
]
SCRIPTS = (
    *("shared/dom", "shared/theme", "shared/plotly", "shared/download"),
    *(f"trace_view/{name}" for name in _PARTS),
)
"""Its scripts in `static/`, in order."""


@cache
def sources() -> dict[str, str | list[str]]:
    """The addresses of the files that a saved page is made of."""
    return {
        "template": served_address(STATIC / "trace_view/trace_view.html"),
        "plotly": plotly_address(),
        "styles": [served_address(STATIC / f"{name}.css") for name in STYLES],
        "scripts": [served_address(STATIC / f"{name}.js") for name in SCRIPTS],
    }


class TraceView(ScriptedHTML):
    """Shows one run from its trace, live or whole.

    The value is a string of JSON lines, schema "specviz-trace", versions 2 to 4. A value that begins with the one
    before it is appended to what is shown, any other value starts anew. Lines that cannot be read are left out and
    counted in the view. `select` events carry the pinned token: `index` counts from 0 over the tokens of the run,
    `value` is the token's text. `play` events ask to replay the run.
    """

    TEMPLATE = template("trace_view/trace_view")
    CSS = style(STYLES)
    JS = script(SCRIPTS, ("createTraceView", "loadPlotly"))
    """Defines `SpecViz.createTraceView(root, {methods, plotly, onSelect, …})`, see `trace_view.js`."""
    MOUNT = view_script(
        "createTraceView",
        """methods: props.methods,
  onSelect: (index, value) => trigger("select", { index, value }),
  replay: props.replay,
  onReplay: props.offers_replay ? () => trigger("play") : null,
  sources: props.sources,""",
    )

    def __init__(
        self,
        value: str = "",
        *,
        methods: dict[str, dict[str, Any]] | None = None,
        replay: bool = False,
        offers_replay: bool = False,
        **kwargs: Any,
    ) -> None:
        """Make a view.

        Args:
            value: the trace to begin with.
            methods: the words and ranges of each method, by its name, in place of `method_words()`.
            replay: show the run step by step, with a transport. A line of type "yardstick" in the value, with
                "seconds_per_token" and "machine", gives the verifier's own speed.
            offers_replay: show a button that asks for a replay, by a `play` event.
            **kwargs: what `gr.HTML` takes beside template, style and script: visible, elem_id, scale, ….
        """
        super().__init__(
            value,
            methods=method_words() if methods is None else methods,
            plotly_address=plotly_address(),
            sources=sources(),
            replay=replay,
            offers_replay=offers_replay,
            **kwargs,
        )


class CompareView(ScriptedHTML):
    """Shows several runs, live or whole: panes, each a view of one, and a table of them all.

    The value is the lines of `specviz.analysis.comparison`; one that begins with the one before it is appended to what is shown.
    """

    TEMPLATE = template("compare_view/compare_view").replace("<!-- view -->", TraceView.TEMPLATE)
    CSS = style((*STYLES, "compare_view/compare_view"))
    JS = script((*SCRIPTS, "compare_view/compare_view"), ("createCompareView", "loadPlotly"))
    MOUNT = view_script("createCompareView", "methods: props.methods, sources: props.sources,")

    def __init__(self, **kwargs: Any) -> None:
        """Make a view; `kwargs` as for `ScriptedHTML`."""
        super().__init__(
            methods=method_words(),
            plotly_address=plotly_address(),
            sources=sources(),
            **kwargs,
        )
