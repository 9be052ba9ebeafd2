"""Compiled functions and their cache, which only their owner can write."""

from __future__ import annotations

import ctypes
import itertools
import os
from pathlib import Path

import numba
import numpy as np
import pytest
from numba.core.bytecode import FunctionIdentity
from numba.extending import register_jitable

from specviz.compat import numba as compat
from specviz.compat.numba import CompiledFunction, array_at, array_part


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
    for damage in (path.read_bytes()[:-7], b"\0" * 200):
        path.write_bytes(damage)
        assert [was_cached(), was_cached()] == [False, True]
    assert not was_cached("changed")
    monkeypatch.setattr(compat, "target_name", lambda: "another")
    assert not was_cached()


def test_no_file_is_read_that_others_can_write_or_that_is_anothers(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.umask(0o002)  # as where each user has a group
    try:
        assert [was_cached(), was_cached()] == [False, True]
    finally:
        os.umask(before)
    (path,) = own_cache.glob("*.bin")
    for mode in (0o620, 0o602):
        path.chmod(mode)
        assert [was_cached(), was_cached()] == [False, True]
    monkeypatch.setattr(os, "getuid", lambda: path.stat().st_uid + 1)
    assert not was_cached()


def test_arrays_are_made_of_addresses_and_of_arrays_without_copying() -> None:
    at = array_at(numba.types.float32)

    @numba.njit
    def double(address, size, start, most):  # type: ignore[no-untyped-def]
        some = array_part(at(address, size), start, most)
        for index in range(some.size):
            some[index] *= 2
        return some.size

    numbers = np.arange(8, dtype=np.float32)
    assert double(numbers.ctypes.data, 8, 2, 3) == 3
    assert double(numbers.ctypes.data, 8, 6, 512) == 2
    assert numbers.tolist() == [0, 1, 4, 6, 8, 5, 12, 14]


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
