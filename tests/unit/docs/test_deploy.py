"""What a deployment rests on: the Space's front matter, the Dockerfile, and a document that names every variable."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from typer.main import get_command

from specviz.cli.main import app as shell
from specviz.models.registry import PAIRS
from specviz.serving.limits import PREFIX, Limits

ROOT = Path(__file__).parents[3]
DEPLOY = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
COLOURS = {"red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray"}


def front_matter() -> dict[str, Any]:
    _, block, _ = (ROOT / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    return yaml.safe_load(block)


def requirements() -> dict[str, Requirement]:
    text = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return {found.name: found for found in map(Requirement, filter(None, lines))}


def test_front_matter_is_what_spaces_take() -> None:
    """The names and values of the hub's reference; a Space that is refused shows nothing at all."""
    found = front_matter()
    assert found["sdk"] == "gradio"
    assert requirements()["gradio"].specifier.contains(found["sdk_version"])
    assert found["python_version"] == "3.12"
    assert len(found["short_description"]) <= 60
    assert {found["colorFrom"], found["colorTo"]} <= COLOURS
    assert (ROOT / found["app_file"]).is_file()
    assert (ROOT / found["thumbnail"]).is_file()
    assert re.fullmatch(r"\d+[mh]", found["startup_duration_timeout"])
    assert set(found["models"]) <= {name for spec in PAIRS.values() for name in spec.repositories}
    assert set(found) <= {
        *("title", "emoji", "colorFrom", "colorTo", "sdk", "sdk_version", "python_version", "app_file"),
        *("fullWidth", "short_description", "models", "tags", "suggested_hardware", "thumbnail", "license"),
        *("startup_duration_timeout", "pinned"),
    }


def test_what_spaces_bring_is_not_required() -> None:
    """`spaces` is of the platform; a version of ours beside it would break ZeroGPU, as a torch it does not take would."""
    assert "spaces" not in requirements()
    assert requirements()["torch"].specifier.contains("2.11.0")


def instructions() -> list[tuple[str, str]]:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in lines]


def copied() -> list[str]:
    return [source for name, rest in instructions() if name == "COPY" for source in shlex.split(rest)[:-1]]


def test_the_container_is_nobody() -> None:
    """A pinned base, never root, a health check, all addresses, a cache that outlives it, and a way to end it."""
    steps = instructions()
    names = [name for name, _ in steps]
    assert re.fullmatch(r"python:3\.\d+-slim-[a-z]+", dict(steps)["FROM"])
    users = [rest for name, rest in steps if name == "USER"]
    assert users[-1].isdigit()
    assert int(users[-1]) > 0
    assert names.index("USER") > max(at for at, name in enumerate(names) if name in ("RUN", "COPY"))
    assert "/healthz" in dict(steps)["HEALTHCHECK"]
    assert "HOST=0.0.0.0" in dict(steps)["ENV"]
    assert "XDG_CACHE_HOME=/cache" in dict(steps)["ENV"].split()
    assert (dict(steps)["VOLUME"], dict(steps)["STOPSIGNAL"]) == ("/cache", "SIGINT")
    assert "ADD" not in names


def test_nothing_unneeded_gets_into_the_image() -> None:
    """All is ignored but what is copied: no test, no document, no history, no secret that lies about."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    allowed = {rule[1:] for rule in rules if rule.startswith("!")}
    assert allowed == {source.removeprefix("./") for source in copied()}
    assert all((ROOT / source).exists() for source in copied())


_STARTS = """
import os, sys
from specviz.serving import offer
import app
print(len(app.demo.blocks))
del sys.modules["app"]
offer.offered_pairs.cache_clear()
os.environ["SPECVIZ_PAIRS_OFFERED"] = "nope"
import app
"""


def test_the_page_is_built_from_what_is_copied(tmp_path: Path) -> None:
    """What the Dockerfile copies is enough for the whole page, in a home that is empty; a wrong variable is one sentence."""
    for source in copied():
        if (ROOT / source).is_dir():
            shutil.copytree(
                ROOT / source,
                tmp_path / source,
                ignore=shutil.ignore_patterns("__pycache__", "*.png", "*.pyi"),
            )
        else:
            shutil.copy(ROOT / source, tmp_path / source)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    environment |= {"HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-B", "-c", _STARTS],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1, done.stderr[-3000:]
    assert int(done.stdout.splitlines()[-1]) > 100
    assert done.stderr.splitlines()[-1].startswith(
        "SPECVIZ_PAIRS_OFFERED names 'nope', which is no pair: say"
    )
    assert "Traceback" not in done.stderr


def test_every_variable_is_told_of() -> None:
    """The table names every limit with its default, and every other variable that the code reads; and no more."""
    rows = dict(re.findall(r"^\| `(SPECVIZ_\w+)` \| (.*?) \|", DEPLOY, re.MULTILINE))
    limits = {PREFIX + each.name.upper(): str(each.default) for each in fields(Limits)}
    assert {name: rows.get(name) for name in limits} == limits
    code = [ROOT / "app.py", *(ROOT / "specviz").rglob("*.py")]
    read = {
        name
        for path in code
        for name in re.findall(r"SPECVIZ_[A-Z_]*[A-Z]", path.read_text(encoding="utf-8"))
    }
    assert set(rows) == set(limits) | read


@pytest.mark.parametrize("block", re.findall(r"```sh\n(.*?)```", DEPLOY, re.DOTALL))
def test_commands_can_be_typed(block: str) -> None:
    """What is to be typed reads as a shell reads it, and our own commands take the options that are given."""
    for line in block.splitlines():
        words = shlex.split(line)
        assert words
        if "-m" in words and words[words.index("-m") + 1] == "specviz":
            name, *options = words[words.index("-m") + 2 :]
            command = get_command(shell).commands[name]  # type: ignore[attr-defined]
            assert command.make_context(name, options).params
