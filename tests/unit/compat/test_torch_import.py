"""Torch is imported by the server without what it does not need; each test says in a sentence what has changed."""

from __future__ import annotations

import inspect

import torch
import torch._library.utils as utilities

from specviz.compat import torch_import


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
