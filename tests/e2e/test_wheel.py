"""The wheel, installed apart from the checkout: shell, library and page work from any folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from specviz.core.methods import METHODS
from specviz.engine.engine import Engine
from specviz.schema.settings import Request
from tests.support.wheel import ROOT, build_wheel, install_wheel


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    install_wheel(build_wheel(tmp_path_factory.mktemp("wheel")), folder)
    return folder


@pytest.fixture
def run(site: Path, tmp_path: Path):
    """Runs a command in an empty folder with the installed wheel; returns its output."""

    def call(*command: str) -> str:
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(site), "HF_HUB_OFFLINE": "1"},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    return call


def test_the_command_lists_methods_from_any_folder(run, site: Path) -> None:
    """By the console script."""
    printed = run(sys.executable, str(site / "bin" / "specviz"), "methods")
    assert all(name in printed for name in METHODS)


_WORKS = """
import sys
from pathlib import Path

import specviz
from specviz import __main__ as shell
from specviz.analysis.sweep.folder import open_recorded
from specviz.app.components.scripted_html import STATIC
from specviz.app.look import FONTS
from specviz.app.page import build_page
from specviz.lessons.lesson import Lesson
from specviz.lessons.shelf import shown_lessons
from specviz.resources import ASSETS
from specviz.serving.service import Service

assert shell.main(sys.argv[3:]) == 0
site = Path(sys.argv[1]).resolve()
assert Path(specviz.__file__).resolve().is_relative_to(site), specviz.__file__
assert ASSETS.is_relative_to(site), ASSETS
assert open_recorded() is not None
assert isinstance(shown_lessons().lessons["cascades"], Lesson)
assert all((STATIC / f"fonts/{file}.woff2").is_file() for _, file, _, _ in FONTS)
print(len(build_page(Service()).blocks))
strangers = [
    module.__file__
    for module in list(sys.modules.values())
    if getattr(module, "__file__", None) and Path(module.__file__).is_relative_to(sys.argv[2])
    and ".venv" not in module.__file__
]
assert not strangers, strangers
"""


def test_shell_and_page_of_the_wheel_are_those_of_the_checkout(run, site: Path, engine: Engine) -> None:
    """Law 2: the same seed gives the same text, with the wheel's drafter. The page has its files, fonts, recordings and
    lessons; no module comes from the checkout."""
    prompt = "Why is the sky blue?"
    arguments = ("--max-new-tokens", "16", "--seed", "1", "--device", "cpu", "--dtype", "float32")
    printed = run(sys.executable, "-c", _WORKS, str(site), str(ROOT), "generate", prompt, *arguments)
    [expected] = engine.generate(Request(prompt=prompt, max_new_tokens=16, seed=1))
    assert printed.startswith(expected.text + "\n")
    assert int(printed.removeprefix(expected.text + "\n")) > 100
