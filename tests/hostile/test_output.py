"""What a server prints and logs while strangers do their worst: nothing of what they sent."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from tests.hostile.conftest import API, JSON, FakeService, Live
from tests.hostile.test_events import run_of_generate
from tests.hostile.test_files import upload

MARKER = "xyzzy-marker"


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Live, Path]]:
    """A server in a process of its own, and where its output goes."""
    folder = tmp_path_factory.mktemp("output")
    output, said = folder / "log", folder / "address"
    with output.open("w") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.hostile.server", str(said)],
            stdin=subprocess.PIPE,  # it ends when this does, whatever becomes of the test
            stdout=stream,
            stderr=subprocess.STDOUT,
        )
        while not (said.exists() and (address := said.read_text())):
            assert process.poll() is None, output.read_text()
            time.sleep(0.05)
        http = httpx.Client(base_url=address, timeout=30)
        yield Live(address, SimpleNamespace(config=http.get("/config").json()), FakeService(), http), output
        http.close()
        process.kill()
        process.wait(timeout=20)


def test_nothing_of_what_is_sent_is_printed_or_logged(apart: tuple[Live, Path]) -> None:
    """No prompt, query, header, body, file or file's name reaches the log, whatever breaks."""
    live, output = apart
    index, data = run_of_generate(live)
    at = next(number for number, value in enumerate(data) if isinstance(value, str) and len(value) > 40)
    for prompt in (MARKER, f"fail {MARKER}"):
        data[at] = prompt
        assert live.event(index, data)["success"]
    for value in (
        MARKER,
        [MARKER],
        {MARKER: MARKER},
        {"path": f"/{MARKER}", "meta": {"_type": "gradio.FileData"}},
    ):
        for event in live.page.config["dependencies"]:
            body = json.dumps(
                {"fn_index": event["id"], "data": [value] * len(event["inputs"]), "session_hash": MARKER}
            )
            for path in ("run/predict", f"run/{MARKER}"):
                live.send("POST", f"{API}/{path}", content=body, headers=JSON)
    for path in (
        "queue/join",
        "call/generate",
        "call/v2/generate",
        f"call/{MARKER}",
        f"call/v2/{MARKER}",
        MARKER,
    ):
        for content in (
            f'{{"data":["{MARKER}"],"fn_index":-1,"session_hash":"{MARKER}"}}',
            f'{{"{MARKER}":',
            f'["{MARKER}"]',
        ):
            live.send("POST", f"{API}/{path}", content=content, headers=JSON)
    for path in (
        "/",
        f"/{MARKER}",
        f"{API}/file=/{MARKER}",
        f"{API}/queue/data",
        f"{API}/custom_component/{MARKER}/client/a/b",
    ):
        query = {"prompt": MARKER, "page": MARKER, "session_hash": MARKER, "deep_link": MARKER}
        live.send("GET", path, params=query)
        for name in ("x-forwarded-host", "x-gradio-server", "cookie", "user-agent", "range", "host", MARKER):
            live.send("GET", path, headers={name: f"{MARKER} <{MARKER}>"}, params={"session_hash": "x"})
    upload(live, f"{MARKER}.jsonl", MARKER.encode())
    live.send("POST", f"{API}/upload", files={MARKER: (MARKER, MARKER)}, data={"files": MARKER})
    live.raw(f"{MARKER} / {MARKER}\r\n\r\n".encode())
    live.raw(
        f"GET /?{MARKER} HTTP/1.1\r\nHost: {MARKER}\r\nContent-Length: {MARKER}\r\nConnection: close\r\n\r\n".encode()
    )
    assert live.send("GET", "/healthz").status_code == 200
    written = output.read_text()
    assert MARKER not in written
    events = [json.loads(line)["event"] for line in written.splitlines() if line.startswith("{")]
    assert "a run failed" in events, "what breaks inside is still logged"
    assert "Traceback" not in written
