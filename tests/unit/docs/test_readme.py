"""README's Python example runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.tiny import tiny_pair

README = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")


def test_the_python_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    [example] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    pair = tiny_pair("llama", tmp_path)
    monkeypatch.setattr("specviz.engine.pair.load_pair", lambda *_: pair)
    monkeypatch.chdir(tmp_path)
    exec(example, {})
    assert (tmp_path / "run.jsonl").exists()
    assert capsys.readouterr().out.count("\n") >= 7
