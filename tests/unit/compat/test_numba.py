"""Compiled functions and their cache; tests/unit/test_files.py shows that only its owner can write it."""

from __future__ import annotations

import ctypes
import itertools
from pathlib import Path

import pytest
from numba.core.bytecode import FunctionIdentity
from numba.extending import register_jitable

from specviz.compat import numba as compat
from specviz.compat.numba import CompiledFunction


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path))
    return tmp_path / "machine-code"


def was_cached(sources: str = "") -> bool:
    """Compile a small function, or read it; whether it was read."""
    made = CompiledFunction(lambda x: x + 1, 1, returns=True, name="next", sources=sources)
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(made.address)(6) == 7
    return bool(made._compiled.cache_hits)


def test_what_is_damaged_or_of_other_sources_or_for_another_processor_is_compiled_anew(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [was_cached(), was_cached()] == [False, True]
    (path,) = own_cache.glob("*.bin")
    path.write_bytes(path.read_bytes()[:-7])
    assert [was_cached(), was_cached()] == [False, True]
    assert not was_cached("changed")
    monkeypatch.setattr(compat, "target_name", lambda: "another")
    assert not was_cached()


def test_functions_made_by_one_function_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have one name but for a number, which counts from 1 in each process; one process may read what two have compiled."""
    made = []
    for start in (2, 3, 2, 3):
        monkeypatch.setattr(FunctionIdentity, "_unique_ids", itertools.count(1))
        made.append(counted(start))
    two, three = (ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(each.address)(7) for each in made[2:])
    assert three - two == 5


def counted(start: int) -> CompiledFunction:
    """Of x: a number that is greater by 5 where `start` is by 1, by a function of its own, too long to be written into it five times."""

    @register_jitable
    def count(x, y):  # type: ignore[no-untyped-def]
        total = 0
        for i in range(x):
            for j in range(i % 3):
                total += j * (total % 7 - y)
            for j in range(i % 5):
                total -= j * (total % 11 + y)
            for j in range(i % 7):
                total ^= j * (total % 13 - y)
            for j in range(i % 11):
                total += j ^ (total % 17 + y)
        return total + start

    def whole(x):  # type: ignore[no-untyped-def]
        return count(x, 1) + count(x, 2) + count(x, 3) + count(x, 4) + count(x, 5)

    return CompiledFunction(whole, 1, returns=True, name=f"from-{start}", sources="")
