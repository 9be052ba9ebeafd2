"""What the documents and the deployment files promise works: examples, commands, the Dockerfile, the Space."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from typer.main import get_command

from specviz.cli.main import app as shell
from specviz.serving.limits import PREFIX
from tests.support.tiny import tiny_pair

ROOT = Path(__file__).parents[3]
README, DEPLOY = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/deploy.md"))
STARTS = """
import os, sys
from specviz.serving import offer
import app
print(len(app.demo.blocks))
del sys.modules["app"]
offer.offered_pairs.cache_clear()
os.environ["SPECVIZ_PAIRS_OFFERED"] = "nope"
import app
"""


def test_the_space_is_accepted() -> None:
    """The hub refuses a Space with a long description or a missing file; gradio's version is one that is required."""
    front = yaml.safe_load(README.split("---\n", 2)[1])
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    required = [Requirement(line.partition("#")[0]) for line in lines if line.partition("#")[0].strip()]
    [gradio] = [each for each in required if each.name == "gradio"]
    assert gradio.specifier.contains(front["sdk_version"])
    assert len(front["short_description"]) <= 60
    assert all((ROOT / front[name]).is_file() for name in ("app_file", "thumbnail"))


def test_the_page_is_built_from_what_the_dockerfile_copies(tmp_path: Path) -> None:
    """In an empty home; a wrong variable ends the start in one sentence."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    for line in re.findall(r"^COPY (.*)$", text, re.MULTILINE):
        for source in shlex.split(line)[:-1]:
            if (ROOT / source).is_dir():
                left_out = shutil.ignore_patterns("__pycache__", "*.png", "*.pyi")
                shutil.copytree(ROOT / source, tmp_path / source, ignore=left_out)
            else:
                shutil.copy(ROOT / source, tmp_path / source)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    environment |= {"HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-B", "-c", STARTS], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 1, done.stderr[-3000:]
    assert int(done.stdout.splitlines()[-1]) > 100
    assert done.stderr.splitlines()[-1].startswith(
        "SPECVIZ_PAIRS_OFFERED names 'nope', which is no pair: say"
    )
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("block", re.findall(r"```sh\n(.*?)```", DEPLOY, re.DOTALL))
def test_commands_can_be_typed(block: str) -> None:
    """Every line reads as a shell reads it, and SpecViz's own commands take the options given."""
    for line in block.splitlines():
        words = shlex.split(line)
        assert words
        if "-m" in words and words[words.index("-m") + 1] == "specviz":
            name, *options = words[words.index("-m") + 2 :]
            command = get_command(shell).commands[name]  # type: ignore[attr-defined]
            assert command.make_context(name, options).params


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
