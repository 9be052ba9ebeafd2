"""The package: its requirements, its files, its names, and what importing it imports."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from email.message import Message
from email.parser import Parser
from importlib.metadata import packages_distributions
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import specviz
from tests.support.wheel import ROOT, build_wheel

EXTRAS = {
    "bench": {"flashspec"},
    "eval": {"lm-eval"},
    "llama-cpp": {"llama-cpp-python"},
    "loadtest": {"locust"},
}
NOT_IMPORTED = {"mcp": "gradio serves tools with it"}
PLATFORM = {"spaces", "triton", "llama-cpp"}
"""ZeroGPU's package, torch's package for GPUs, and the module of llama-cpp-python where that is not installed."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with ZipFile(wheel) as archive:
        [name] = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def requirements(metadata: Message, extra: str = "") -> dict[str, Requirement]:
    """What the wheel requires, by canonical name: always, or for an extra alone, on a Python for which all of an extra has releases."""
    found = [Requirement(line) for line in metadata.get_all("Requires-Dist", [])]
    if extra:
        found = [
            one
            for one in found
            if one.marker and one.marker.evaluate({"extra": extra, "python_version": "3.12"})
        ]
    else:
        found = [one for one in found if not one.marker]
    return {canonicalize_name(one.name): one for one in found}


def imported() -> Iterator[tuple[str, Path]]:
    """Every foreign top-level module that the project imports anywhere, and where."""
    for path in [ROOT / "app.py", *(ROOT / "specviz").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            else:
                continue
            for name in {name.partition(".")[0] for name in names}:
                if name not in sys.stdlib_module_names and name != "specviz":
                    yield name, path


def test_every_import_is_declared_and_nothing_else(metadata: Message) -> None:
    """What is imported is required, by the package or by an extra; what is required is imported, or has its reason."""
    required = set(requirements(metadata))
    declared = required.union(*EXTRAS.values()) | PLATFORM
    distributions = packages_distributions()
    used = set()
    for module, path in imported():
        candidates = {canonicalize_name(name) for name in distributions.get(module, [module])}
        assert candidates & declared, f"{path.relative_to(ROOT)} imports {module}, which is not declared"
        used |= candidates
    assert required - used - set(NOT_IMPORTED) == set()


def test_requirements_are_bounded(metadata: Message) -> None:
    """A Space and the package have one list, and every requirement has bounds."""
    lines = (line.partition("#")[0] for line in (ROOT / "requirements.txt").read_text().splitlines())
    listed = [Requirement(line) for line in lines if line.strip()]
    found = requirements(metadata)
    assert {canonicalize_name(one.name): one.specifier for one in listed} == {
        name: one.specifier for name, one in found.items()
    }
    for extra, names in EXTRAS.items():
        assert set(requirements(metadata, extra)) == names
        found |= requirements(metadata, extra)
    for name, one in (found | requirements(metadata, "test")).items():
        assert {bound.operator for bound in one.specifier} in ({">=", "<"}, {">=", "<="}), name


def test_the_wheel_carries_what_is_read_at_run_time(wheel: Path) -> None:
    """Modules, page files, templates, drafter, recorded runs, sweep and tasks; no picture; at most 40 MB."""
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
    assert packed == expected


def test_all_names_are_there() -> None:
    assert all(getattr(specviz, name) is not None for name in specviz.__all__)
    assert set(specviz.__all__) <= set(dir(specviz))
    assert specviz.METHODS["speed"].name == "speed"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = specviz.nothing


_IMPORTS = """
import os, sys
from contextlib import contextmanager, suppress
from threading import Event

def absent(*names):
    found = set(names) & set(sys.modules)
    assert not found, found

finders = list(sys.meta_path)
import specviz
assert sys.meta_path == finders
import specviz.schema.trace, specviz.models.availability, specviz.models.smollm2
from specviz.errors import PairError
with suppress(PairError):
    specviz.load_pair("nope")
absent("torch", "transformers", "gradio", "plotly", "huggingface_hub")

if (child := os.fork()) == 0:
    import specviz.analysis.sweep.sweep, specviz.engine.engine, specviz.models.loading
    absent("gradio", "plotly", "pydantic")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0

from specviz.serving.offer import default_pair, offered_pairs
print(default_pair(), *offered_pairs())
absent("torch", "gradio", "spaces")

from specviz.serving.service import Service

class Unloaded(Service):
    @contextmanager
    def engine(self, key, progress=None):
        raise PairError("not yet")
        yield

service, request, stop = Unloaded(), specviz.Request("A prompt"), Event()
for ask in (
    lambda: service.lines("embedded", request, stop),
    lambda: service.compare_lines(["embedded"] * 2, [request] * 2, stop),
    lambda: service.sweep("embedded", None, stop),
):
    with suppress(PairError):
        next(ask())
        raise AssertionError("nothing was loaded")
    absent("torch", "transformers")

from specviz.cli.main import main
assert not any(main([*command, "--help"]) for command in ([], ["generate"], ["bench"], ["sweep"], ["eval"]))
absent("torch")
"""


def test_no_more_is_imported_than_is_needed() -> None:
    """`import specviz` is immediate; settings and pairs are listed, the offer asked, a service asked before a pair is loaded (two threads
    that import transformers at once can get half a module), and help given without torch; the library does without the page's.
    """
    environment = os.environ | {"SPECVIZ_PAIRS_OFFERED": "opt,gpt2"}
    command = [sys.executable, "-c", _IMPORTS]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split()[:3] == ["opt", "opt", "gpt2"]
