"""The cache, and files that are written whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from specviz.files import kept, write_whole


def test_a_cached_text_is_read_until_its_sources_change_or_it_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path / "cache"))
    made: list[str] = []

    def make() -> str:
        made.append(f"text {len(made)}, α\r\nand\n")
        return made[-1]

    assert [kept("name", [b"one", b"two"], make) for _ in range(2)] == made * 2
    assert kept("name", [b"onetwo"], make) == made[1], "parts are told apart"
    assert kept("other", [b"onetwo"], make) == made[2]
    assert kept("name", [b"onetwo"], make) == made[1]
    whole = (tmp_path / "cache/name").read_bytes()
    for damaged in (b"", whole[:-3], whole[:20], b"\xff" + whole, whole + b"more"):
        (tmp_path / "cache/name").write_bytes(damaged)
        assert kept("name", [b"onetwo"], make) == made[-1]
    assert len(made) == 8


def test_without_a_cache_a_text_is_made_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path / "file" / "cache"))
    made: list[str] = []
    for _ in range(2):
        kept("name", [], lambda: made.append("made") or "text")  # type: ignore[func-returns-value]
    assert made == ["made", "made"]


def test_a_device_is_written_to_and_not_replaced() -> None:
    write_whole(Path("/dev/null"), "nothing")
    assert Path("/dev/null").is_char_device()
