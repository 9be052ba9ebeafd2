"""Traces that strangers open on the stage: each is taken whole or refused in a sentence."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

from specviz.schema.trace import MAX_DRAWN
from tests.hostile.conftest import Live
from tests.hostile.test_events import find
from tests.support.traces import end_entry, round_entry, run_entry, token_entry

LIKELY = {"id": 1, "text": "", "probability": 0}
SCRIPT = "<script>window.__pwned=1</script><img src=x onerror=window.__pwned=1>"


def run(header: Any = (), round_: Any = (), token: Any = ()) -> bytes:
    """A trace of one token, with these fields changed."""
    entries = [
        run_entry("speed") | dict(header),
        round_entry([token_entry("a") | dict(token)], index=0) | dict(round_),
        end_entry(1, "speed", "length"),
    ]
    return "".join(json.dumps(each, default=str) + "\n" for each in entries).encode()


HOSTILE = {
    "too large": b"x" * 5_000_001,
    "deep": b"[" * 1_000_000,
    "one long line": b'"' + b"x" * 4_000_000 + b'"',
    "script as version": run(header={"version": SCRIPT}),
    "many draft tokens": run(round_={"proposals": [{"id": 1, "text": "", "q": 0}] * (MAX_DRAWN + 1)}),
    "many top tokens": run(token={"top": dict.fromkeys("qp") | {"pi": [LIKELY] * (MAX_DRAWN + 1)}}),
    "many critical leniences": run(
        header={"alternatives": [{"method": "speed", "lenience": 0}]},
        token={"what_if": {"acceptance": [1], "flips": [[0] * 100_000], "kept": None}},
    ),
    "proto": run(header={"__proto__": {"polluted": 1}, "prompt": None}),
}  # fmt: skip


def packed(content: bytes) -> str:
    """A file as the page sends it."""
    return base64.b64encode(gzip.compress(content)).decode()


def show(live: Live, content: bytes | None, sent: Any = None) -> dict[str, Any]:
    """The first line that a trace is answered with. `sent` replaces what the page would send."""
    [event] = find(live, "view", "open")
    data = packed(content) if content is not None else sent
    answer = live.post("run/predict", event["id"], [], event_data=data)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = json.loads(answer.json()["data"][0].splitlines()[0])
    return found


NOT_PACKED = (None, 1, "", "!", "eA==", packed(run())[:-40], packed(b"x" * 50_000_000), [packed(run())])


def test_a_hostile_trace_is_one_sentence(live: Live) -> None:
    """The server goes on. Neither gzip nor base64 can break it, nor can gzip make a small body large."""
    for sent in (*map(packed, HOSTILE.values()), *NOT_PACKED):
        answer = show(live, None, sent)
        assert answer["type"] == "error", sent
        assert 10 < len(answer["message"]) <= 300
        assert "Traceback" not in answer["message"]


def test_markup_comes_back_as_text(live: Live) -> None:
    """It is passed on as data; tests/browser/test_hostile.py sees that it is shown as text."""
    header = dict.fromkeys(("prompt", "drafter", "verifier", "device", "pair", "method"), SCRIPT)
    token = {"text": SCRIPT, "label": SCRIPT, "what_if": None}
    assert show(live, run(header=header | {"alternatives": []}, token=token)).get("prompt") == SCRIPT
