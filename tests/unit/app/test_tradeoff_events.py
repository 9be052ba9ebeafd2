"""The events of the place Speed or quality: which sweeps there are, and the limits of a live one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from specviz.analysis.sweep.folder import shown_sweeps
from specviz.app.tabs.tradeoff import OWN, YOURS, Live, TradeoffEvents, plan_of
from specviz.core.methods import METHODS
from specviz.errors import RequestError


class Event:
    """What the browser sent."""

    def __init__(self, **sent: Any) -> None:
        self._data = sent


def test_it_opens_on_the_first_recorded_sweep_and_shows_the_others_by_title() -> None:
    title, recorded = next(iter(shown_sweeps().items()))
    events: Any = TradeoffEvents(None, {title: recorded, "Another": recorded})  # type: ignore[arg-type]
    first = json.loads(events.shown(0))
    assert (first["titles"], first["which"]) == ([title, "Another"], 0)
    assert json.loads(events.show(Live(), Event(sweep=1)))["which"] == 1
    own = json.loads(events.show(Live(recorded), Event(sweep=2)))
    assert (own["titles"][2], own["names"][2], own["which"]) == (YOURS, OWN, 2)
    for sent in ({"sweep": 2}, {"sweep": "0"}, {}):
        with pytest.raises(RequestError, match="no such sweep"):
            events.show(Live(), Event(**sent))
    with pytest.raises(RequestError, match="no such point"):
        events.choose(Live(), Event(sweep=0, point=len(recorded.points)))


@pytest.mark.parametrize(
    ("key", "methods"), [("nothing", ["speed"]), ("embedded", []), ("embedded", list(METHODS))]
)
def test_more_than_a_visitor_may_have_is_refused(key: str, methods: list[str]) -> None:
    with pytest.raises(RequestError):
        plan_of(key, methods, 3, 0.5, 8)
