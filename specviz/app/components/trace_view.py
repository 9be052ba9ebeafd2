"""The view of one run.

Its value is JSON lines, to which whole lines are appended while a run streams. `static/trace_view/` draws it in the browser.
"""

from __future__ import annotations

from typing import Any

from specviz.app.components.scripted_html import STATIC, ScriptedHTML, method_words, module_address
from specviz.compat.gradio import served_address


def sources() -> dict[str, str | list[str]]:
    """Addresses of the files that a saved page contains."""
    return {
        "template": served_address(STATIC / f"{TraceView.MODULE}.html"),
        "styles": [served_address(STATIC / f"{name}.css") for name in ("shared/shared", *TraceView.STYLES)],
        "module": module_address(TraceView.MODULE),
    }


class TraceView(ScriptedHTML):
    """Shows one run from its trace, live or whole.

    The value is the lines of a trace. If a new value begins with the previous value, the view appends the new lines; otherwise it starts
    again. The view counts lines that it cannot read. A `select` event has the index (from 0) and the text of the pinned token. A `fork`
    event requests a fork (see `specviz.app.traces`), whose lines arrive in the prop `branch`; an `unfork` event stops the fork. In a form,
    a `fill` event requests that the form's method and lenience be set; an `open` event requests that a visitor's file be shown.
    """

    MODULE = "trace_view/trace_view"
    STYLES = tuple(
        f"trace_view/{name}" for name in ("trace_view", "timeline", "inspector", "what_if", "branches")
    )
    OWN_EVENTS = ("fork", "unfork", "fill", "open")

    def __init__(self, value: str = "", **kwargs: Any) -> None:
        """Make a view of a trace.

        Args:
            value: the initial trace.
            **kwargs: as for `ScriptedHTML`, and three props that are false by default. `keeps`: Back, Forward and a reload show a
                visitor's run again. `forks`: `fork` events are answered. `form`: the view is in a form, whose controls can request forks
                and save the run; see `static/trace_view/form.js`.
        """
        super().__init__(value, **{"methods": method_words(), "sources": sources(), "branch": ""} | kwargs)
