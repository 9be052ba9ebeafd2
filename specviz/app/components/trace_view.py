"""The view of one run (figures, text token by token, inspector, chart, replay, forks), and of several side by side.

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
    module_address,
    style,
    template,
)
from specviz.compat.gradio import served_address

STYLES = (
    "shared/shared",
    *(
        f"trace_view/{name}"
        for name in ("trace_view", "round", "timeline", "inspector", "what_if", "branches")
    ),
)
"""Its style sheets in `static/`, in order."""


@cache
def sources() -> dict[str, str | list[str]]:
    """The addresses of the files that a saved page is made of."""
    return {
        "template": served_address(STATIC / "trace_view/trace_view.html"),
        "styles": [served_address(STATIC / f"{name}.css") for name in STYLES],
        "module": module_address(TraceView.MODULE),
    }


class TraceView(ScriptedHTML):
    """Shows one run from its trace, live or whole.

    The value is a string of JSON lines, schema "specviz-trace", versions 2 to 4. A value that begins with the one
    before it is appended to what is shown, any other value starts anew. Lines that cannot be read are left out and
    counted in the view. `select` events carry the pinned token: `index` counts from 0 over the tokens of the run,
    `value` is the token's text. `fork` events ask for a fork of it (`specviz.app.forks` says how), whose lines then go into the
    prop `branch`; `unfork` ones need it no more.
    """

    TEMPLATE = template("trace_view/trace_view")
    CSS = style(STYLES)
    MODULE = "trace_view/trace_view"
    OWN_EVENTS = ("fork", "unfork")

    def __init__(
        self,
        value: str = "",
        *,
        methods: dict[str, dict[str, Any]] | None = None,
        keeps: bool = False,
        forks: bool = False,
        branch: str = "",
        **kwargs: Any,
    ) -> None:
        """Make a view.

        Args:
            value: the trace to begin with.
            methods: the words and ranges of each method, by its name, in place of `method_words()`.
            keeps: whether a page that is loaded again at the same address still has the last run shown.
            forks: whether somebody answers `fork` events.
            branch: the lines of the fork that is being written.
            **kwargs: what `gr.HTML` takes beside template, style and script: visible, elem_id, scale, ….
        """
        super().__init__(
            value,
            methods=method_words() if methods is None else methods,
            sources=sources(),
            keeps=keeps,
            forks=forks,
            branch=branch,
            **kwargs,
        )


class CompareView(ScriptedHTML):
    """Shows several runs, live or whole: panes, each a view of one, and a table of them all.

    The value is the lines of `specviz.serving.comparison`; one that begins with the one before it is appended to what is shown.
    """

    TEMPLATE = template("compare_view/compare_view").replace("<!-- view -->", TraceView.TEMPLATE)
    CSS = style((*STYLES, "compare_view/compare_view"))
    MODULE = "compare_view/compare_view"

    def __init__(self, **kwargs: Any) -> None:
        """Make a view; `kwargs` as for `ScriptedHTML`."""
        super().__init__(
            methods=method_words(),
            sources=sources(),
            **kwargs,
        )
