"""Cached files, and files that are written whole."""

from __future__ import annotations

from pathlib import Path

from specviz.files import read_intact, write_intact, write_whole


def test_a_cached_file_is_read_only_if_it_is_whole_and_nobody_else_could_write_it(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "file"
    write_intact(path, b"content")
    assert read_intact(path) == b"content"
    whole = path.read_bytes()
    for damaged in (b"", whole[:-3], whole[:20], b"\xff" + whole, whole + b"more"):
        path.write_bytes(damaged)
        assert read_intact(path) is None
    write_intact(path, b"content")
    path.chmod(0o666)
    assert read_intact(path) is None
    write_intact(path / "below a file", b"content")  # a failure is ignored
    assert read_intact(path / "below a file") is None


def test_a_device_is_written_to_and_not_replaced() -> None:
    write_whole(Path("/dev/null"), "nothing")
    assert Path("/dev/null").is_char_device()
