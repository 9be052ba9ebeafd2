"""A sweep as a sentence, a chart and the chosen point's texts. `static/sweep_view/` draws it in the browser."""

from __future__ import annotations

from typing import Any

from specviz.analysis.sweep.results import FIGURES
from specviz.app.components.scripted_html import ScriptedHTML
from specviz.app.marks import chart_marks


class SweepView(ScriptedHTML):
    """Shows a sweep.

    The value comes from `TradeoffEvents.shown`. A `choose` event requests the card of a point, which arrives in the prop `card`. A `show`
    event requests another sweep. An `open` event opens a text of the card in Compare. An `own` event opens a live sweep's settings.
    """

    MODULE = "sweep_view/sweep_view"
    STYLES = ("shared/chart", "sweep_view/sweep_view")
    OWN_EVENTS = ("choose", "show", "open", "own")

    def __init__(self, value: str = "", **kwargs: Any) -> None:
        """Make a view; `kwargs` as for `ScriptedHTML`."""
        figures = {name: figure._asdict() for name, figure in FIGURES.items()}
        super().__init__(value, **{"card": "", "methods": chart_marks(), "figures": figures} | kwargs)

    def preprocess(self, payload: str | None) -> str:
        """Discard the value, which the server does not need."""
        return ""
