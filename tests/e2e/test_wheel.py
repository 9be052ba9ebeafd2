"""The wheel: its requirements and files; installed apart from the checkout, shell, library and page work from any folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

import specviz
from specviz.engine.engine import Engine
from specviz.schema.settings import Request
from tests.support.wheel import ROOT, build_wheel, install_wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def test_the_wheel_carries_what_is_read_at_run_time(wheel: Path) -> None:
    """Modules, page files, templates, drafter, recorded runs, sweep and tasks; no picture; at most 40 MB. And the licences."""
    assert wheel.stat().st_size < 40e6
    expected = {
        ("" if folder == "specviz" else "specviz/") + path.relative_to(ROOT).as_posix()
        for folder, unneeded in (("specviz", {".pyi"}), ("assets", {".png", ".svg"}))
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix not in unneeded and path.parent.name != "__pycache__"
    }
    with ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("specviz/")}
        assert {name.partition("/")[0] for name in archive.namelist()} <= {
            "specviz",
            f"specviz-{specviz.__version__}.dist-info",
        }
        for name in ("LICENSE", "NOTICE"):
            [carried] = (each for each in archive.namelist() if each.endswith(f".dist-info/licenses/{name}"))
            assert archive.read(carried) == (ROOT / name).read_bytes()
    assert packed == expected


_WORKS = """
import sys
from pathlib import Path

import specviz
from specviz import __main__ as shell
from specviz.analysis.sweep.folder import open_recorded
from specviz.app.components.scripted_html import STATIC
from specviz.app.page import build_page
from specviz.lessons.lesson import Lesson, shown_lessons
from specviz.resources import ASSETS
from specviz.serving.service import Service

assert shell.main(sys.argv[3:]) == 0
assert "transformers.modeling_utils" not in sys.modules, "it takes as long to import as the pair to load"
site = Path(sys.argv[1]).resolve()
assert Path(specviz.__file__).resolve().is_relative_to(site), specviz.__file__
assert ASSETS.is_relative_to(site), ASSETS
open_recorded()
assert isinstance(shown_lessons()["cascades"], Lesson)
assert len(list((STATIC / "fonts").glob("*.woff2"))) == 5
print(len(build_page(Service()).blocks))
strangers = [
    module.__file__
    for module in list(sys.modules.values())
    if getattr(module, "__file__", None) and Path(module.__file__).is_relative_to(sys.argv[2])
    and ".venv" not in module.__file__
]
assert not strangers, strangers
"""


def test_shell_and_page_of_the_wheel_are_those_of_the_checkout(
    wheel: Path, tmp_path: Path, engine: Engine
) -> None:
    """Law 2: the same seed gives the same text, with the wheel's drafter, in an empty folder. The page has its files, fonts, recordings
    and lessons; no module comes from the checkout, and none of transformers' models is imported. The command is there.
    """
    site, empty = tmp_path / "site", tmp_path / "empty"
    install_wheel(wheel, site)
    empty.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(site), "HF_HUB_OFFLINE": "1"}
    prompt = "Why is the sky blue?"
    asked = ("--max-new-tokens", "16", "--seed", "1", "--device", "cpu", "--dtype", "float32")
    command = [sys.executable, "-c", _WORKS, str(site), str(ROOT), "generate", prompt, *asked]
    done = subprocess.run(command, cwd=empty, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    [expected] = engine.generate(Request(prompt=prompt, max_new_tokens=16, seed=1))
    assert done.stdout.startswith(expected.text + "\n")
    assert int(done.stdout.removeprefix(expected.text + "\n")) > 100
    assert (site / "bin" / "specviz").is_file()
