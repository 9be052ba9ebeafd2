"""Two processes share the compiling that a first start needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from specviz.core import compiling, loops
from specviz.runtime.cpu.fused import functions
from specviz.runtime.cpu.fused.processor import dot_products

SECOND = """
import pathlib, sys
from specviz.core import compiling
print("here", flush=True)
with compiling.alone("thing"):
    print(pathlib.Path(sys.argv[1]).exists())
"""


def test_one_process_at_a_time_compiles_a_thing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path))
    made = tmp_path / "made"
    with compiling.alone("thing"), compiling.alone("another"):
        other = subprocess.Popen([sys.executable, "-c", SECOND, made], stdout=subprocess.PIPE, text=True)
        assert other.stdout is not None
        assert other.stdout.readline() == "here\n"
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(0.3)
        made.touch()
    assert other.communicate()[0] == "True\n"


def test_where_no_file_can_be_written_each_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path / "file"))
    with compiling.alone("thing"), compiling.alone("thing"):
        pass
    compiling.is_done()


def test_the_other_process_is_begun_until_it_has_come_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path))
    begun, compiled = [], []
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: begun.append(command))
    compiling.begin.__wrapped__()
    assert [sys.executable, "-c"] == begun[0][:2]
    made = ("stage", "lead", "follow", "draft", "multiply", "quantise", "embed", "attend")
    for name in made:
        monkeypatch.setattr(functions, name, lambda *_, name=name: compiled.append(name))
    monkeypatch.setattr(functions.os, "nice", lambda _: None)
    monkeypatch.setattr(functions.gc, "disable", lambda: None)
    exec(begun[0][2])
    assert compiled[:4] == ["stage", "lead", "follow", "draft"]
    assert dot_products() is None or set(compiled) == set(made)
    compiling.begin.__wrapped__()
    assert len(begun) == 1


def test_loops_are_compiled_when_they_are_asked_for() -> None:
    assert set(loops.FIRST) < set(loops.ALL)
    assert all(getattr(loops, name).signatures for name in loops.ALL)
    with pytest.raises(AttributeError, match="no loop nothing"):
        loops.nothing  # noqa: B018
