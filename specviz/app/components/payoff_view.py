"""Whether drafting pays: the curve of speed-up over draft length, with measured points. `static/payoff_view/` computes and draws it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from specviz.analysis.payoff import measurements
from specviz.app.components.scripted_html import ScriptedHTML
from specviz.app.marks import chart_marks
from specviz.schema.settings import MAX_DRAFT_LENGTH


class PayoffView(ScriptedHTML):
    """Sliders for the share kept and the costs, the curve they give, and the recorded measurements to start from."""

    MODULE = "payoff_view/payoff_view"
    STYLES = ("shared/chart", "shared/range", "payoff_view/payoff_view")

    def __init__(self, **kwargs: Any) -> None:
        measured = [asdict(each) for each in measurements()]
        used = {one["method"] for each in measured for one in each["speed_ups"]}
        methods = {name: marks for name, marks in chart_marks().items() if name in used}
        super().__init__(measurements=measured, methods=methods, longest=MAX_DRAFT_LENGTH, **kwargs)
