"""How lines reach a view: all of them, and what went wrong last."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import gradio as gr
import pytest

from specviz.app import running
from specviz.app.running import StopFlag, Stops, grow
from specviz.app.tabs.generate import form_of
from specviz.errors import EngineError
from specviz.schema.trace import parse_trace
from specviz.serving.limits import Limits
from tests.support.traces import make_trace
from tests.support.waiting import wait_until


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


def test_a_run_that_waits_for_the_one_before_can_be_stopped_and_replaced() -> None:
    """All three are of one session: only the last one goes on."""
    stops, session = Stops(), gr.Request(session_hash="one")
    flags, ends = list[StopFlag](), [threading.Event() for _ in range(3)]

    def run(number: int) -> None:
        with stops.running(session, number) as flag:
            flags.append(flag)
            ends[number].wait()

    with ThreadPoolExecutor() as pool:
        pool.submit(run, 0)
        wait_until(lambda: len(flags) == 1)
        waiting = stops._flags["one"]
        pool.submit(run, 1)
        wait_until(lambda: stops._flags["one"] is not waiting)
        second = stops._flags["one"]
        pool.submit(run, 2)
        wait_until(lambda: second.is_set() and second.is_dropped)
        third = stops._flags["one"]
        stops.stop(session, 2)
        assert third.is_set()
        assert not third.is_dropped
        for end in ends:
            end.set()
    assert not stops._flags


def test_a_slider_gets_the_runs_own_penalty_unless_the_pair_has_it() -> None:
    """Empty is the pair's own, which is not known of an owner's pair."""
    for pair, penalty, shown in (
        ("embedded", 1.0, ""),
        ("qwen2.5", 1.05, ""),
        ("qwen2.5", 1.0, "1"),
        ("mine", 1.0, "1"),
        ("mine", 1.2345678, "1.2345678"),
    ):
        run = replace(parse_trace(make_trace().lines), pair=pair, repetition_penalty=penalty)
        assert form_of(run, Limits())["repetition_penalty"] == shown


def test_an_empty_line_asks_to_show_what_came_before_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others wait for the next update, which here never comes."""
    monkeypatch.setattr(running, "UPDATE_SECONDS", float("inf"))
    assert [*grow(lambda: iter(["a\n", "b\n", "", "c\n"]))] == ["a\nb\n", "a\nb\nc\n"]
