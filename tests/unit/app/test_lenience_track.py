"""What the lenience track sends and takes: a checked number for the server, never anything else."""

from __future__ import annotations

import json
from typing import Any

import gradio as gr
import pytest

from specviz.app.components.lenience_track import UNFIT, LenienceTrack, lenience_value
from specviz.core.methods import METHODS, OWN_RULE


@pytest.fixture(scope="module")
def track() -> LenienceTrack:
    return LenienceTrack(lenience_value("speed"))


def test_the_server_gets_the_exact_number(track: LenienceTrack) -> None:
    for lenience in (0, 1, -0.3, 0.30000000000000004, 0.123456789012345):
        found = track.preprocess(lenience_value("cascade_opt", lenience))
        assert isinstance(found, float)
        assert found == lenience
    assert track.preprocess('{"method": "speed", "lenience": null}') is None


@pytest.mark.parametrize(
    "payload",
    [
        *(None, True, 0.3, [], {}, {"lenience": 1}, "", "0.3", "null", "[]", "{}", "{", "<b>x", "\ud800"),
        *('{"lenience": "0.3"}', '{"lenience": true}', '{"lenience": NaN}', '{"lenience": -Infinity}'),
        *('{"lenience": [0.3]}', '{"lenience": {}}', '{"lenience": 1e999}'),
        '{"lenience": 1' + "0" * 400 + "}",
        '{"lenience": 1' + "0" * 5000 + "}",
        "[" * 100_000,
    ],
)
def test_anything_else_is_refused_in_a_sentence(track: LenienceTrack, payload: Any) -> None:
    with pytest.raises(gr.Error) as caught:
        track.preprocess(payload)
    assert caught.value.message == UNFIT


def test_the_browser_gets_every_method_and_every_scale(track: LenienceTrack) -> None:
    """So that another method, pair or temperature is drawn without asking the server."""
    props = track.props
    assert list(props["methods"]) == list(METHODS)
    for name, words in props["methods"].items():
        assert bool(words["none"]) != METHODS[name].has_lenience
    assert set(props["sweep"]["scales"]) == {
        name
        for name, each in METHODS.items()
        if each.has_lenience and not each.truncates and name != OWN_RULE
    }
    assert len(json.dumps({**props, "style": ""})) < 12_000
