"""What the lenience track sends and takes: a checked number for the server, never anything else."""

from __future__ import annotations

from typing import Any

import gradio as gr
import pytest

from specviz.app.components.lenience_track import UNFIT, LenienceTrack, lenience_value


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
        *(None, 0.3, {"lenience": 1}, "", "null", "[]", "{}", "{", "[" * 100_000, '{"lenience": "0.3"}'),
        *('{"lenience": true}', '{"lenience": NaN}', '{"lenience": 1e999}'),
        *('{"lenience": 1' + "0" * zeros + "}" for zeros in (400, 5000)),
    ],
)
def test_anything_else_is_refused_in_a_sentence(track: LenienceTrack, payload: Any) -> None:
    with pytest.raises(gr.Error) as caught:
        track.preprocess(payload)
    assert caught.value.message == UNFIT
