"""What the documents and the deployment files promise works: examples, commands, the Space."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from tests.support.tiny import tiny_pair

ROOT = Path(__file__).parents[3]
README, DEPLOY = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/deploy.md"))


def test_the_space_is_accepted() -> None:
    """The hub refuses a Space with a long description or a missing file; gradio's version is one that is required."""
    front = yaml.safe_load(README.split("---\n", 2)[1])
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    required = [Requirement(line.partition("#")[0]) for line in lines if line.partition("#")[0].strip()]
    [gradio] = [each for each in required if each.name == "gradio"]
    assert gradio.specifier.contains(front["sdk_version"])
    assert len(front["short_description"]) <= 60
    assert all((ROOT / front[name]).is_file() for name in ("app_file", "thumbnail"))


def test_the_readmes_python_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    [example] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    pair = tiny_pair("llama", tmp_path)
    monkeypatch.setattr("specviz.engine.pair.load_pair", lambda *_: pair)
    monkeypatch.chdir(tmp_path)
    exec(example, {})
    assert (tmp_path / "run.jsonl").exists()
    assert capsys.readouterr().out.count("\n") >= 7
