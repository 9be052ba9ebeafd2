"""What the page's components take from the browser, where anybody can send anything: their own values, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import gradio as gr
import pytest

from specviz.app.components.compare_view import Panes, panes_value
from specviz.app.components.lenience_track import LenienceTrack, lenience_value
from specviz.app.link import Pane

PANE = {"method": "speed", "lenience": 0.5, "draft_length": "auto", "pair": None}
WRONG_PANES = ({"method": []}, {"lenience": "0"}, {"draft_length": 0.5}, {"pair": 5}, {"more": 1})


def test_values_come_back_as_they_were_sent() -> None:
    """A lenience to the last digit."""
    sent = [Pane("speed", 0.30000000000000004), Pane("cascade_diff", -1.0, 5, "embedded-skip")]
    assert [Pane(**each) for each in Panes().preprocess(panes_value(sent))] == sent
    for lenience in (0, -0.3, 0.30000000000000004, 0.123456789012345):
        found = LenienceTrack().preprocess(lenience_value("cascade_opt", lenience))
        assert (found, type(found)) == (lenience, float)
    assert LenienceTrack().preprocess('{"method": "speed", "lenience": null}') is None


@pytest.mark.parametrize("component", [Panes, LenienceTrack])
@pytest.mark.parametrize(
    "payload",
    [
        *(None, "", "[" * 100_000, "{}", "5", {"lenience": 1}, '{"lenience": true}', '{"lenience": NaN}'),
        '{"lenience": 1' + "0" * 5000 + "}",
        *map(json.dumps, ([PANE], [PANE] * 5, [[], []], *([PANE, PANE | wrong] for wrong in WRONG_PANES))),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_anything_else_is_refused_in_a_sentence(component: Any, payload: Any) -> None:
    with pytest.raises(gr.Error):
        component().preprocess(payload)
