"""How lines reach a view: from a thread of their own, in order, and not a line longer than anyone listens."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest

from specviz.errors import EngineError
from specviz.ui.running import apart, grow


def test_lines_are_made_in_another_thread_while_one_is_being_sent() -> None:
    ahead, threads = threading.Event(), []

    def lines() -> Iterator[str]:
        threads.append(threading.current_thread())
        yield "one\n"
        ahead.set()
        yield "two\n"

    sent = []
    for line in apart(lines):
        assert ahead.wait(5)  # whoever sends a line need not come back for the next to be made
        sent.append(line)
    assert sent == ["one\n", "two\n"]
    assert threads[0] is not threading.current_thread()
    assert not threads[0].is_alive()


def test_whoever_stops_listening_ends_the_lines_and_waits_until_they_have_cleaned_up() -> None:
    cleaned = []

    def lines() -> Iterator[str]:
        try:
            while True:
                yield "more\n"
        finally:
            cleaned.append(True)

    listening = apart(lines)
    assert next(listening) == "more\n"
    listening.close()
    assert cleaned == [True]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (EngineError("Memory ran out."), "Memory ran out."),
        (ValueError("inside"), "Something broke inside SpecViz"),
    ],
)
def test_what_goes_wrong_is_the_last_line_after_all_that_came_before(error: Exception, message: str) -> None:
    def lines() -> Iterator[str]:
        yield '{"type":"run"}\n'
        raise error

    *_, last = grow(lines)
    first, failure = last.splitlines()
    assert first == '{"type":"run"}'
    assert json.loads(failure)["type"] == "error"
    assert json.loads(failure)["message"].startswith(message)
