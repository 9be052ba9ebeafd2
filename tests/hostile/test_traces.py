"""Traces that strangers open on the stage: each is taken whole or refused in a sentence."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from typing import Any

import pytest

from tests.hostile.conftest import Live
from tests.hostile.test_events import find
from tests.hostile.test_files import upload
from tests.support.traces import end_entry, line, make_trace, round_entry, run_entry, token_entry

SCRIPT = "<script>window.__pwned=1</script><img src=x onerror=window.__pwned=1>"


def run(
    *, header: dict[str, Any] | None = None, token: dict[str, Any] | None = None, end: Any = None
) -> bytes:
    """A trace of one token, with these fields changed."""
    entries = [
        run_entry("speed") | (header or {}),
        round_entry([token_entry("a") | (token or {})], index=0),
        end_entry(1, "speed", "length") | (end or {}),
    ]
    return "".join(json.dumps(each, default=str) + "\n" for each in entries).encode()


def bomb() -> bytes:
    """A zip of many zeros."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("trace.jsonl", b"0" * 10_000_000)
    return file.getvalue()


WHOLE = make_trace().value.encode()
HOSTILE = {
    "nothing": b"",
    "not text": b"\xff\xfe\0",
    "zip": bomb(),
    "gzip": gzip.compress(b"0" * 1_000_000),
    "too large": b"x" * 5_000_001,
    "deep": b"[" * 1_000_000,
    "deep object": b'{"a":' * 100_000,
    "many lines": b"{}\n" * 1_000_000,
    "many empty lines": b"\n" * 4_000_000,
    "one long line": b'"' + b"x" * 4_000_000 + b'"',
    "half a trace": WHOLE[: len(WHOLE) // 2],
    "no end": WHOLE.rsplit(b"\n", 2)[0],
    "twice": WHOLE + WHOLE,
    "null": b"null\n" * 3,
    "html": f"<html>{SCRIPT}</html>".encode(),
    "huge whole": run(token={"id": 10**400}),
    "huge": run(end={"seconds": 10**400}),
    "huge digits": WHOLE.replace(b'"seconds":', b'"seconds":' + b"9" * 5000, 1),
    "nan": run(token={"q": float("nan")}),
    "infinite": run(token={"coin": float("inf")}),
    "half a character": run(header={"prompt": "\ud800"}),
    "half a character in a token": run(token={"text": "\udc00"}),
    "script as reason": run(end={"stop_reason": SCRIPT}),
    "script as version": run(header={"version": SCRIPT}),
    "true as number": run(token={"id": True}),
    "text as list": run(header={"prompt_ids": "123"}),
    "object as text": run(header={"prompt": {"toString": 1}}),
    "proto": run(header={"__proto__": {"polluted": 1}, "prompt": None}),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_trace_is_one_sentence(live: Live, name: str) -> None:
    """A file is either understood or refused in one short sentence, and the server goes on."""
    [event] = find(live, "upload", "upload")
    path = upload(live, "run.jsonl", HOSTILE[name])
    result = live.event(event["id"], [{"path": path, "meta": {"_type": "gradio.FileData"}}])
    assert result["success"], result
    answer = json.loads(result["output"]["data"][0].splitlines()[0])
    if name == "huge whole" and answer["type"] == "run":  # any whole number is one
        return
    assert answer["type"] == "error"
    assert 10 < len(answer["message"]) <= 300
    assert "Traceback" not in answer["message"]


def test_scripts_in_every_text_come_back_as_the_text_they_are(live: Live) -> None:
    """Markup is no damage; it is passed on as data, and shown as text (see tests/browser/test_hostile.py)."""
    [event] = find(live, "upload", "upload")
    texts = {"text": SCRIPT, "label": SCRIPT}
    header = {
        "prompt": SCRIPT,
        "drafter": SCRIPT,
        "verifier": SCRIPT,
        "device": SCRIPT,
        "pair": SCRIPT,
        "method": SCRIPT,
    }
    header |= {"alternatives": []}
    path = upload(live, "run.jsonl", run(header=header, token=texts | {"what_if": None}))
    result = live.event(event["id"], [{"path": path, "meta": {"_type": "gradio.FileData"}}])
    first = json.loads(result["output"]["data"][0].splitlines()[0])
    assert first.get("prompt") == SCRIPT, first


def test_the_lines_made_here_are_those_of_a_trace() -> None:
    """What the changed fields are put into is sound; else nothing would be tested above."""
    assert line(json.loads(run().splitlines()[0])) == line(run_entry("speed"))
