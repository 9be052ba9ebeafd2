"""How lines reach a view: all of them, and what went wrong last."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from specviz.app import running
from specviz.app.running import grow
from specviz.errors import EngineError


@pytest.mark.parametrize(
    ("error", "told"), [(EngineError("Memory ran out."), True), (ValueError("a detail"), False)]
)
def test_what_goes_wrong_is_the_last_line_after_all_that_came_before(error: Exception, told: bool) -> None:
    """In its own words only where they are meant for users."""

    def lines() -> Iterator[str]:
        yield '{"type":"run"}\n'
        raise error

    *_, last = grow(lines)
    first, failure = last.splitlines()
    assert first == '{"type":"run"}'
    assert json.loads(failure)["type"] == "error"
    assert (str(error) in failure) == told


def test_an_empty_line_asks_to_show_what_came_before_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others wait for the next update, which here never comes."""
    monkeypatch.setattr(running, "UPDATE_SECONDS", float("inf"))
    assert [*grow(lambda: iter(["a\n", "b\n", "", "c\n"]))] == ["a\nb\n", "a\nb\nc\n"]
