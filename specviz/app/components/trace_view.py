"""The view of one run.

Its value is JSON lines, to which whole lines are appended while a run streams. `static/trace_view/` draws it in the browser.
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
    *(f"trace_view/{name}" for name in ("trace_view", "timeline", "inspector", "what_if", "branches")),
)
"""The style sheets of the view, in order."""


@cache
def sources() -> dict[str, str | list[str]]:
    """Addresses of the files that a saved page contains."""
    return {
        "template": served_address(STATIC / "trace_view/trace_view.html"),
        "styles": [served_address(STATIC / f"{name}.css") for name in STYLES],
        "module": module_address(TraceView.MODULE),
    }


class TraceView(ScriptedHTML):
    """Shows one run from its trace, live or whole.

    The value is the lines of a trace. If a new value begins with the previous one, the view appends the new lines; otherwise it starts
    again. It counts lines that it cannot read. A `select` event carries the index (from 0) and the text of the pinned token. A `fork`
    event requests a fork (see `specviz.app.forks`), whose lines arrive in the prop `branch`; an `unfork` event drops it. In a form, a
    `fill` event asks to set the form's method and lenience, and an `open` event to show a visitor's file (see `specviz.app.recorded`).
    """

    TEMPLATE = template("trace_view/trace_view")
    CSS = style(STYLES)
    MODULE = "trace_view/trace_view"
    OWN_EVENTS = ("fork", "unfork", "fill", "open")

    def __init__(
        self,
        value: str = "",
        *,
        methods: dict[str, dict[str, Any]] | None = None,
        keeps: bool = False,
        forks: bool = False,
        form: bool = False,
        branch: str = "",
        **kwargs: Any,
    ) -> None:
        """Make a view.

        Args:
            value: the initial trace.
            methods: used in place of `method_words()`.
            keeps: whether the page shows the last run again after a reload.
            forks: whether `fork` events are answered.
            form: whether the view is in a form, whose controls request forks and save; see `static/trace_view/form.js`.
            branch: the lines of the current fork.
            **kwargs: as for `ScriptedHTML`.
        """
        super().__init__(
            value,
            methods=method_words() if methods is None else methods,
            sources=sources(),
            keeps=keeps,
            forks=forks,
            form=form,
            branch=branch,
            **kwargs,
        )
