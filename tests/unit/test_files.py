"""Cached files, and files that are written whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from specviz.files import read_intact, write_intact, write_whole


def test_a_cached_file_is_read_only_if_it_is_whole_and_nobody_else_could_write_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "folder" / "file"
    before = os.umask(0o002)  # as where each user has a group
    try:
        write_intact(path, b"content")
    finally:
        os.umask(before)
    assert read_intact(path) == b"content"
    whole = path.read_bytes()
    for damaged in (b"", whole[:-3], whole[:20], b"\xff" + whole, whole + b"more"):
        path.write_bytes(damaged)
        assert read_intact(path) is None
    write_intact(path / "below a file", b"content")  # a failure is ignored
    for mode in (0o620, 0o602):
        write_intact(path, b"content")
        path.chmod(mode)
        assert read_intact(path) is None
    write_intact(path, b"content")
    monkeypatch.setattr(os, "getuid", lambda: path.stat().st_uid + 1)
    assert read_intact(path) is None


def test_a_device_is_written_to_and_not_replaced() -> None:
    write_whole(Path("/dev/null"), "nothing")
    assert Path("/dev/null").is_char_device()
