"""The package: its names, and what importing it imports."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import specviz
from tests.support.wheel import ROOT


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
