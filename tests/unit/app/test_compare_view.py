"""The settings of panes, which anybody can send: what fits no request is refused in a sentence."""

from __future__ import annotations

import json
from typing import Any

import gradio as gr
import pytest

from specviz.app.components.compare_view import Panes, panes_value
from specviz.app.link import Pane

PANE = {"method": "speed", "lenience": 0.5, "draft_length": "auto", "pair": None}
WRONG = (
    *({"method": []}, {"lenience": "0"}, {"lenience": None}, {"draft_length": 0.5}),
    *({"pair": 5}, {"more": 1}),
)


def test_panes_come_back_as_they_were_sent() -> None:
    sent = [Pane("speed", 0.5), Pane("cascade_diff", -1.0, 5, "embedded-skip")]
    found = Panes().preprocess(panes_value(sent))
    assert [Pane(**each) for each in found] == sent


@pytest.mark.parametrize(
    "payload",
    [
        *(None, "", "[", "[" * 100_000, "{}", "5"),
        *map(json.dumps, ([PANE], [PANE] * 5, [[], []], *([PANE, PANE | wrong] for wrong in WRONG))),
    ],
)
def test_other_values_are_refused(payload: Any) -> None:
    with pytest.raises(gr.Error, match="There must be 2 to 4 panes"):
        Panes().preprocess(payload)
