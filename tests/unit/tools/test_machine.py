"""A machine in words, by which measurements are told apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from specviz.tools.machine import describe_processor

_RENTED = """processor\t: 0
cpu family\t: {family}
model\t\t: 1
model name\t: AMD EPYC
flags\t\t: fpu avx avx2 {flags}

processor\t: 1
model name\t: another
"""


@pytest.mark.parametrize(
    ("cpuinfo", "words"),
    [
        (_RENTED.format(family=25, flags="fma"), "AMD EPYC (family 25, model 1, AVX2)"),
        (_RENTED.format(family=26, flags="avx512_vnni"), "AMD EPYC (family 26, model 1, AVX-512-VNNI)"),
        ("", "arm"),
    ],
)
def test_a_processor_is_described_by_what_the_system_tells(
    cpuinfo: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rented machines of different generations have one name; a system may tell nothing."""
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: cpuinfo)
    monkeypatch.setattr("platform.processor", lambda: "arm")
    assert describe_processor().rpartition(", ")[0] == words
