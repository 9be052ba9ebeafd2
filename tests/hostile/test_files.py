"""Files: only what the page is made of is served, and a file that is sent stays where it was put."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from gradio.utils import get_upload_folder

from specviz.app.components.scripted_html import STATIC
from specviz.app.components.trace_view import sources
from tests.hostile.conftest import API, Live, file_data
from tests.hostile.test_events import find
from tests.support.traces import make_trace

ROOT = Path(__file__).parents[2]
PRIVATE = (
    *("/etc/passwd", "/proc/self/environ", "/proc/self/cwd/app.py", "/dev/zero", "app.py", "./app.py", ".git/config"),
    *(str(ROOT / name) for name in ("app.py", ".git/config", "assets", "specviz/app/static", "specviz/app/static/../page.py")),
    *("", "..", "~/.ssh", "//etc/passwd", "/etc/../etc/passwd", "file:///etc/passwd", "\\\\host\\share", "C:\\Windows\\win.ini"),
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
        assert live.raw_get(shape % "/etc/passwd", "HEAD").split()[1][:1] == b"4"


def test_a_link_among_the_uploads_leads_nowhere(live: Live) -> None:
    """A symbolic link is judged by where it leads."""
    folder = Path(get_upload_folder())
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / f"hostile-link-{os.getpid()}"
    link.symlink_to("/etc/passwd")
    try:
        assert live.send("GET", f"{API}/file={link}").status_code == 403
    finally:
        link.unlink()


def test_the_files_of_the_page_are_served_whole_and_in_parts(live: Live) -> None:
    """What the page is made of comes, and a folder lists nothing."""
    found = sources()
    for path in (found["template"], found["module"], *found["styles"]):
        assert live.send("GET", f"/{path}").status_code == 200
        assert live.send("GET", f"/{path}", headers={"range": "bytes=0-9"}).status_code == 206
    for folder in (get_upload_folder(), f"{get_upload_folder()}/", str(STATIC), str(ROOT)):
        assert live.send("GET", f"{API}/file={folder}").status_code == 403


def upload(live: Live, name: str, content: bytes) -> str:
    """Where a file that was sent lies."""
    answer = live.send("POST", f"{API}/upload", files={"files": (name, content)})
    assert answer.status_code == 200, answer.text
    return str(answer.json()[0])


def test_the_name_of_a_file_leads_nowhere(live: Live) -> None:
    """An uploaded file lies in its own folder among the uploads, whatever it is called."""
    for name in (
        "../../x",
        "..\\..\\x",
        "/etc/x",
        "C:\\x",
        ".bashrc",
        "n" * 400,
        "\u202egpj.exe",
        "%2e%2e%2fx",
        "<b>.html",
    ):
        path = Path(upload(live, name, f"content of {name}".encode()))
        assert path.resolve().parents[1] == Path(get_upload_folder()).resolve()
        answer = live.send("GET", f"{API}/file={quote(str(path))}")
        assert answer.headers["content-type"].startswith(("application/octet-stream", "text/plain"))
        path.unlink()


def test_uploads_that_are_none_are_refused(live: Live) -> None:
    """The same for forms that are none; 4xx in a sentence."""
    for how in (
        {"files": {"files": ("..", b"x")}},
        {"files": {"other": ("a", b"b")}, "data": {"files": "text"}},
        {"content": b"x", "headers": {"content-type": "multipart/form-data; boundary="}},
        {"content": b"x", "headers": {"content-type": "multipart/form-data"}},
        {"content": b"--x\r\n\r\n", "headers": {"content-type": "multipart/form-data; boundary=x"}},
        {"files": [("files", (f"{number}", b"")) for number in range(1001)]},
    ):
        answer = live.send("POST", f"{API}/upload", **how)
        assert 400 <= answer.status_code < 500, answer.text


def test_only_an_uploaded_file_is_opened_and_no_file_of_the_page_is_deleted(live: Live) -> None:
    """A trace is read from among the uploads alone; gradio would let the page's own files, and addresses, through."""
    [event] = find(live, "upload", "upload")
    words = str(sources()["template"]).split("file=")[1]
    for path in (
        "/etc/passwd",
        words,
        "http://127.0.0.1/x",
        get_upload_folder(),
        "",
        "\0",
        7,
    ):
        for file in (file_data(path), file_data(path, url=path, is_stream=True)):
            result = live.event(event["id"], [file])
            assert not result["success"]
            assert "root:" not in str(result)
    assert Path(words).exists()


def test_two_who_send_the_same_trace_at_once_both_see_it(live: Live) -> None:
    """Gradio stores the same content once, so that both uploads are one file."""
    [event] = find(live, "upload", "upload")
    paths = [upload(live, "run.jsonl", make_trace().value.encode()) for _ in range(2)]
    for number, path in enumerate(paths):
        result = live.event(event["id"], [file_data(path)], session=f"guest {number}")
        assert result["success"]
        assert "From a file" in str(result["output"]["data"])
