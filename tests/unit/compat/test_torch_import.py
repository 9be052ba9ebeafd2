"""Torch is imported by the server without what it does not need; each test says in a sentence what has changed."""

from __future__ import annotations

import inspect
import subprocess
import sys

import torch
import torch._library.utils as utilities

from specviz.compat import torch_import
from tests.support.wheel import ROOT

SCRIPT = f"""
import sys
from specviz.compat.torch_import import lighten_torch
lighten_torch()
import torch
from specviz.core.methods import get_method
print(torch.rand(2, generator=torch.Generator().manual_seed(0)).tolist())
print(get_method("own_rule", "p(v) >= (1 - a) * max p").name)
print({torch_import.LATER!r} in sys.modules)
"""


def test_torch_still_imports_what_is_left_for_later() -> None:
    assert f"import {torch_import.LATER.rpartition('.')[2]}" in inspect.getsource(torch), (
        f"importing torch does not import {torch_import.LATER} any more: compat/torch_import.py may leave it alone"
    )


def test_a_line_is_told_as_torch_tells_it() -> None:
    theirs = getattr(utilities, torch_import.SOURCE, None)
    assert theirs is not None, f"torch has no {torch_import.UTILITIES}.{torch_import.SOURCE} any more"
    assert "getframeinfo" in inspect.getsource(theirs), "torch does not look through all modules any more"
    lines = [function(1) for function in (theirs, torch_import._source)]
    assert lines[0] == lines[1]


def test_what_a_server_does_is_done_without_what_is_left_for_later() -> None:
    """Generators are made, and a rule of one's own is read, which tries it on random numbers."""
    run = subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, (
        f"torch {torch.__version__} lacks something without {torch_import.LATER}: {run.stderr}"
    )
    numbers = torch.rand(2, generator=torch.Generator().manual_seed(0)).tolist()
    assert run.stdout.splitlines() == [str(numbers), "own_rule", "False"]
