"""A machine in words: what a measurement is told apart by."""

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


def described(text: str | OSError, monkeypatch: pytest.MonkeyPatch) -> str:
    def read(*_: object, **__: object) -> str:
        if isinstance(text, OSError):
            raise text
        return text

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", read)
        patch.setattr("platform.processor", lambda: "arm")
        return describe_processor().rpartition(", ")[0]


def test_generations_that_a_rented_machine_names_alike_are_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Timings of one are not the other's, and a report says what fused passes multiply with."""
    older = described(_RENTED.format(family=25, flags="fma"), monkeypatch)
    newer = described(_RENTED.format(family=26, flags="avx512_vnni avx_vnni"), monkeypatch)
    assert older == "AMD EPYC (family 25, model 1, AVX2)"
    assert newer == "AMD EPYC (family 26, model 1, AVX-512-VNNI)"


def test_a_system_that_tells_nothing_is_described_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    assert described("", monkeypatch) == described(OSError(), monkeypatch) == "arm"
