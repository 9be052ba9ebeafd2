"""A machine in words, by which measurements are told apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from specviz.tools.machine import describe_processor

_RENTED = "cpu family\t: 26\nmodel\t\t: 1\nmodel name\t: AMD EPYC\nflags\t\t: fpu avx2 avx512_vnni\n\nmodel name\t: another\n"


@pytest.mark.parametrize(
    ("cpuinfo", "words"), [(_RENTED, "AMD EPYC (family 26, model 1, AVX-512-VNNI)"), ("", "arm")]
)
def test_a_processor_is_described_by_what_the_system_tells(
    cpuinfo: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rented machines of different generations have one name; a system may tell nothing."""
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: cpuinfo)
    monkeypatch.setattr("platform.processor", lambda: "arm")
    assert describe_processor().rpartition(", ")[0] == words
