"""Components of the tab Learn: the lessons, the playground, and the calculator that shows whether drafting pays.

The components' modules in `static/` compute and draw everything in the browser. When a lesson is opened, the browser fetches the lesson's
steps from the route `/lessons`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from specviz.analysis.payoff import measurements
from specviz.app.components.scripted_html import ScriptedHTML, method_words
from specviz.app.link import PANES, query_of
from specviz.app.marks import chart_marks
from specviz.lessons.lesson import BrokenLesson, Lesson, shown_lessons
from specviz.schema.settings import MAX_DRAFT_LENGTH


class Playground(ScriptedHTML):
    """Two distributions over six words, whose probabilities can be dragged, and each method's result for them."""

    MODULE = "playground/playground"
    STYLES = ("shared/range", "playground/playground")

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(methods=method_words(), **kwargs)


class PayoffView(ScriptedHTML):
    """Sliders for the acceptance rate and the costs, the resulting curve of speed-ups, and recorded measurements to start from."""

    MODULE = "payoff_view/payoff_view"
    STYLES = ("shared/chart", "shared/range", "payoff_view/payoff_view")

    def __init__(self, **kwargs: Any) -> None:
        measured = [asdict(each) for each in measurements()]
        used = {one["method"] for each in measured for one in each["speed_ups"]}
        methods = {name: marks for name, marks in chart_marks().items() if name in used}
        super().__init__(measurements=measured, methods=methods, longest=MAX_DRAFT_LENGTH, **kwargs)


class LessonPlayer(ScriptedHTML):
    """The list of lessons, and the open lesson, which fills the screen."""

    MODULE = "lesson/lesson"
    STYLES = ("race/race", "trace_view/inspector", "lesson/lesson")

    def __init__(self, lessons: Mapping[str, Lesson | BrokenLesson], **kwargs: Any) -> None:
        """Make a player of `lessons`, which are given by name; `kwargs` as for `ScriptedHTML`."""
        covers = [lesson.cover() for lesson in lessons.values()]
        super().__init__(methods=method_words(), lessons=covers, **kwargs)


def _told(lesson: Lesson) -> dict[str, Any]:
    """A whole lesson, JSON-ready. The "live" of a step is the query of a link that opens the step's settings in another tab, or None."""
    steps = []
    for step in lesson.steps:
        first, live = next(iter(step.texts.values())), step.picture.live
        own = f"&{urlencode(live.own)}" if live and live.own else ""
        steps.append(
            {
                "kind": step.kind,
                "minutes": step.minutes,
                "deeper": first.deeper,
                "data": step.picture.data,
                "values": step.picture.values,
                "right": first.right,
                "texts": {code: asdict(text) for code, text in step.texts.items()},
                "live": live and query_of(live.tab, live.settings, _thinned(live.panes)) + own,
            }
        )
    return lesson.cover() | {"steps": steps}


def _thinned(panes: Sequence[Any]) -> list[Any]:
    """Reduce panes to the maximum number in a comparison: the first, the last and some between them. Return [] for fewer than two."""
    steps = min(len(panes), PANES[-1]) - 1
    return [panes[round(at * (len(panes) - 1) / steps)] for at in range(steps + 1)] if steps > 0 else []


def lesson_route() -> Route:
    """The route `/lessons?name=…`. It answers with the whole lesson; if the lesson is missing or broken, with a "problem"."""

    def answer(request: Request) -> Response:
        found = shown_lessons().get(request.query_params.get("name", ""))
        if found is None:
            return JSONResponse({"problem": "There is no lesson of this name."}, 404)
        return JSONResponse(found.cover() if isinstance(found, BrokenLesson) else _told(found))

    return Route("/lessons", answer)
