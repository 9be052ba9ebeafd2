"""What explains the methods without a model: lessons on recorded text, and the playground.

Everything is computed and drawn in the browser, by `static/lesson/` and `static/playground/`; a lesson's steps are fetched when it
is opened, from the route that is here too. This module handles no event and computes nothing.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from specviz.app.components.scripted_html import ScriptedHTML, method_words, style, template
from specviz.errors import SpecvizError
from specviz.lessons.lesson import BrokenLesson
from specviz.lessons.shelf import Lessons, shown_lessons

ADDRESS = "lessons"
"""Where a lesson is fetched, as `?name=` says; beside the page's own address."""


class Playground(ScriptedHTML):
    """Six words, two distributions to drag, and what each of the methods makes of them."""

    TEMPLATE = template("playground/playground")
    CSS = style(("shared/shared", "playground/playground"))
    MODULE = "playground/playground"

    def __init__(self, **kwargs: Any) -> None:
        """Make one; `kwargs` as for `ScriptedHTML`."""
        super().__init__(methods=method_words(), **kwargs)


class LessonPlayer(ScriptedHTML):
    """The lessons there are, and the one that is open, on the whole screen. It has no value and sends nothing."""

    TEMPLATE = '<div class="specviz sl-lessons"></div>'
    CSS = style(("shared/shared", "race/race", "trace_view/inspector", "lesson/lesson"))
    MODULE = "lesson/lesson"

    def __init__(self, lessons: Lessons, **kwargs: Any) -> None:
        """Offer `lessons`; `kwargs` as for `ScriptedHTML`."""
        super().__init__(methods=method_words(), lessons=_covers(lessons), **kwargs)


def _covers(lessons: Lessons) -> list[dict[str, Any]]:
    """What the list says of each lesson, and of what is wrong with one."""
    found: list[dict[str, Any]] = []
    for lesson in lessons.lessons.values():
        if isinstance(lesson, BrokenLesson):
            found.append({"name": lesson.name, "problem": lesson.problem})
            continue
        used = ("language", "start", "steps", "loading", "missing")
        languages = {
            code: {**texts, "words": {name: lessons.words[code][name] for name in used}}
            for code, texts in lesson.texts.items()
        }
        deeper = sum(lesson.deeper)
        found.append({"name": lesson.name, "main": lesson.main, "deeper": deeper, "languages": languages})
    return found


def lesson_route() -> Route:
    """The route that answers with a whole lesson, or with the sentence that says what is wrong with it."""

    def answer(request: Request) -> Response:
        lessons = shown_lessons()
        found = lessons.lessons.get(request.query_params.get("name", ""))
        if found is None:
            return JSONResponse({"problem": "There is no lesson of this name."}, 404)
        if isinstance(found, BrokenLesson):
            return JSONResponse({"problem": found.problem})
        try:
            return JSONResponse(found.told(lessons.words))
        except SpecvizError as error:
            return JSONResponse({"problem": str(error)})

    return Route(f"/{ADDRESS}", answer)
