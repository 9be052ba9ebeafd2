"""Files: only what the page is made of is served, and a file that is sent stays where it was put."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from gradio.utils import get_upload_folder

from specviz.app.components.scripted_html import STATIC
from specviz.app.components.trace_view import sources
from tests.hostile.conftest import API, Live, file_data
from tests.hostile.test_events import dependencies
from tests.hostile.test_traces import show
from tests.support.traces import make_trace

ROOT = Path(__file__).parents[2]
PRIVATE = (
    *("/etc/passwd", "/proc/self/environ", "/proc/self/cwd/app.py", "/dev/zero", "app.py", "./app.py", ".git/config"),
    *(str(ROOT / name) for name in ("app.py", ".git/config", "assets", "specviz/app/static", "specviz/app/static/../page.py")),
    *("", "..", "~/.ssh", "//etc/passwd", "/etc/../etc/passwd", "file:///etc/passwd"),
    *("/etc/passwd\0.js", "\0", "%2e%2e/app.py", "a" * 5000, "\ud7ff", "http://127.0.0.1/", "data:text/html,x"),
    *(str(STATIC), f"{STATIC}/page/bar.js/../../../page.py"),
)  # fmt: skip
SHAPES = (
    f"{API}/file=%s", f"{API}/file/%s", "/file=%s", "/assets/%s", "/static/%s", "/assets/..%%2f..%%2f%s",
    f"{API}/file=/tmp/../%s",
)  # fmt: skip


def test_no_path_leads_out_of_what_the_page_is_made_of(live: Live) -> None:
    """Neither absolute, relative, encoded nor foreign paths give a file that is not the page's own."""
    files = [Path("/etc/passwd"), ROOT / "app.py", ROOT / "specviz/app/page.py"]
    hidden = [*(file.read_bytes()[:40] for file in files), os.environ["PATH"].encode()[:20]]
    for shape in SHAPES:
        for path in PRIVATE:
            for sent in (quote(path, "/:~.", errors="replace"), quote(path, safe="")):
                answer = live.raw_get(shape % sent)
                assert answer.split()[1][:1] == b"4", (shape, path, answer[:80])
                assert not any(each in answer for each in hidden)


def test_nothing_that_is_sent_becomes_a_file(live: Live) -> None:
    """A visitor's trace is part of its event, so that no way to break off leaves a file behind."""
    uploads = Path(get_upload_folder())
    before = sorted(uploads.rglob("*"))
    for name in ("run.jsonl", "..", "n" * 400):
        answer = live.send("POST", f"{API}/upload", files={"files": (name, b"x" * 100_000)})
        assert answer.status_code == 404
    show(live, make_trace().value.encode())
    assert sorted(uploads.rglob("*")) == before


def test_no_event_takes_a_file(live: Live) -> None:
    """Gradio would let an event have the page's own files, and those at addresses."""
    words = str(sources()["template"]).split("file=")[1]
    event = next(each for each in dependencies(live) if each["inputs"] and not each["queue"])
    for path in ("/etc/passwd", words, "http://127.0.0.1/x", get_upload_folder(), "", "\0", 7):
        for file in (file_data(path), file_data(path, url=path, is_stream=True)):
            answer = live.post("run/predict", event["id"], [file] * len(event["inputs"]))
            assert answer.status_code == 422
            assert answer.json()["error"] == "No event here takes a file."
    assert Path(words).exists()
