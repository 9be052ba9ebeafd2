"""What a server prints and logs while strangers do their worst: nothing of what they sent."""

from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from specviz.engine.events import Event
from specviz.serving.logs import configure
from tests.hostile.conftest import API, JSON, Live, file_data
from tests.hostile.test_events import run_of_generate
from tests.hostile.test_traces import show

MARKER = "xyzzy-marker"


@pytest.fixture
def logged(live: Live, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Live, io.StringIO]]:
    """The page, which logs as a real server does and fails in the middle of some texts, and its log."""
    root, log, events = logging.getLogger(), io.StringIO(), live.service.events
    handlers = [*root.handlers]

    def failing(key: str, requests: Any, *more: Any, **named: Any) -> Iterator[Event]:
        for number, event in enumerate(events(key, requests, *more, **named)):
            if number == 3 and "fail" in requests[0].prompt:
                raise ValueError(requests[0].prompt)
            yield event

    monkeypatch.setattr(live.service, "events", failing)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    configure(log, {})
    yield live, log
    root.handlers[:] = handlers


def test_nothing_of_what_is_sent_is_printed_or_logged(
    logged: tuple[Live, io.StringIO], capfd: pytest.CaptureFixture
) -> None:
    """No prompt, query, header, body, file or file's name reaches the log, whatever breaks."""
    live, log = logged
    for prompt in (MARKER, f"fail {MARKER}"):
        assert live.event(*run_of_generate(live, prompt))["success"]
    value = file_data(f"/{MARKER}", **{MARKER: MARKER})
    for event in live.page.config["dependencies"]:
        live.post("run/predict", event["id"], [value] * len(event["inputs"]), MARKER)
        live.post(f"run/{MARKER}", event["id"], [MARKER] * len(event["inputs"]), MARKER)
    bad = f'{{"data":["{MARKER}"],"fn_index":-1,"session_hash":"{MARKER}"}}'
    for path in ("queue/join", "call/generate", f"call/{MARKER}", f"call/v2/{MARKER}", MARKER):
        for content in (bad, f'{{"{MARKER}":'):
            live.send("POST", f"{API}/{path}", content=content, headers=JSON)
    for path in ("/", f"/{MARKER}", f"{API}/file=/{MARKER}", f"{API}/queue/data"):
        live.send("GET", path, params=dict.fromkeys(("prompt", "page", "session_hash", "deep_link"), MARKER))
        for name in ("x-forwarded-host", "cookie", "user-agent", "range", "host", MARKER):
            live.send("GET", path, headers={name: f"{MARKER} <{MARKER}>"}, params={"session_hash": "x"})
    show(live, MARKER.encode())
    show(live, None, MARKER)
    live.send("POST", f"{API}/upload", files={MARKER: (MARKER, MARKER)}, data={"files": MARKER})
    live.raw(f"{MARKER} / {MARKER}\r\n\r\n".encode())
    assert live.send("GET", "/healthz").status_code == 200
    written = log.getvalue()
    assert MARKER not in written + "".join(capfd.readouterr())
    events = [json.loads(line)["event"] for line in written.splitlines() if line.startswith("{")]
    assert "a run failed" in events, "what breaks inside is still logged"
    assert "Traceback" not in written
