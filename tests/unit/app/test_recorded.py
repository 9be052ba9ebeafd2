"""Recorded runs on the page: each is read once, and where one cannot be read the page says so and works."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from specviz.analysis.recorded_runs import RecordedRuns, read_recorded_runs
from specviz.app.components import race
from specviz.app.components.trace_view import TraceView
from specviz.app.page import build_page
from specviz.app.tabs import generate, panes
from specviz.errors import TraceError


def without_index() -> RecordedRuns:
    raise TraceError("The recorded runs cannot be read.")


def without_files() -> RecordedRuns:
    return replace(read_recorded_runs(), folder=Path("nowhere"))


@pytest.mark.parametrize("read", [without_index, without_files])
def test_the_page_opens_without_the_recorded_runs_and_says_so(
    read: Callable[[], RecordedRuns], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (generate, race, panes):
        monkeypatch.setattr(module, "read_recorded_runs", read)
    [view] = [each for each in build_page().blocks.values() if isinstance(each, TraceView)]
    [line] = view.value.splitlines()
    assert json.loads(line)["type"] == "error"
