"""Compiled functions and their cache, which only their owner can write."""

from __future__ import annotations

import ctypes
import logging
import os
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest
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
    return made.was_cached


def test_compiled_code_is_cached_and_a_damaged_file_is_made_anew(own_cache: Path) -> None:
    assert [was_cached(), was_cached()] == [False, True]
    (path,) = own_cache.glob("*.bin")
    for damage in (path.read_bytes()[:-7], b"", b"\0" * 200):
        path.write_bytes(damage)
        assert [was_cached(), was_cached()] == [False, True]


def test_code_of_other_sources_or_for_another_processor_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not was_cached()
    assert not was_cached("changed")
    monkeypatch.setattr(compat, "target_name", lambda: "another")
    assert not was_cached()
    monkeypatch.undo()


def test_no_file_is_read_that_others_can_write_or_that_is_anothers(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in a folder that they cannot: whoever can write the folder above may have put another in its place."""
    before = os.umask(0o002)  # as where each user has a group
    try:
        assert [was_cached(), was_cached()] == [False, True]
    finally:
        os.umask(before)
    (path,) = own_cache.glob("*.bin")
    for mode in (0o620, 0o602):
        path.chmod(mode)
        assert [was_cached(), was_cached()] == [False, True]
    compat._folder(own_cache)
    monkeypatch.setattr(os, "getuid", lambda: path.stat().st_uid + 1)
    assert not was_cached()


@pytest.mark.parametrize("damage", ["group", "all", "link", "file"])
def test_nothing_is_read_from_a_cache_that_others_can_write(
    damage: str, own_cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """All is compiled anew, which is told once."""
    assert not was_cached()
    assert own_cache.stat().st_mode & 0o777 == 0o700
    if damage in ("group", "all"):
        own_cache.chmod(0o770 if damage == "group" else 0o707)
    else:
        own_cache.rename(own_cache.with_name("elsewhere"))
        if damage == "link":
            own_cache.symlink_to("elsewhere")
        else:
            own_cache.touch()
    compat._folder.cache_clear()
    with caplog.at_level(logging.WARNING):
        assert [was_cached(), was_cached()] == [False, False]
    assert len(caplog.records) == 1
    compat._folder.cache_clear()


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


def test_processes_read_what_others_compiled_without_numbas_registries_and_tell_it_apart(
    tmp_path: Path,
) -> None:
    """Nor does reading keep anything from being compiled afterwards. Functions made by one function have one name but for a number,
    which counts from 1 in each process.
    """
    first, second = (
        subprocess.run(
            [sys.executable, "-c", READER, tmp_path, str(start)], check=True, capture_output=True, text=True
        )
        for start in (2, 3)
    )
    assert first.stdout.split() == ["False", "True", "7.0", "10.0"]
    assert second.stdout.split() == ["True", "False", "7.0", "10.0"]
    from_two, from_three = (counted(start, str(tmp_path)) for start in (2, 3))
    assert from_two.was_cached
    assert from_three.was_cached
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
    assert kind(from_three.address)(7) - kind(from_two.address)(7) == 5


READER = """
import os, sys
os.environ["SPECVIZ_CACHE"] = sys.argv[1]
import numba, numpy as np
from specviz.compat.numba import compiled_for_python

def total(values, more):
    found = float(more)
    for value in values:
        found += value
    return found

loop = compiled_for_python(total, "f8(f8[::1], i8)", name="total", sources="", nogil=True)
print(bool(loop.stats.cache_hits), "numba.np.linalg" in sys.modules)
print(loop(np.array([1.0, 2.0]), 4), numba.njit(lambda values: np.sum(values))(np.arange(5.0)))
from tests.unit.compat.test_numba import counted
counted(int(sys.argv[2]), sys.argv[1])
"""


def counted(start: int, folder: str) -> CompiledFunction:
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

    os.environ["SPECVIZ_CACHE"] = folder
    return CompiledFunction(whole, 1, returns=True, name=f"from-{start}", sources="")
