"""Answers that nobody fetches: they have a bound in time and in bytes, and their runs end."""

from __future__ import annotations

from typing import Any

import pytest

from specviz.compat import gradio_answers
from tests.hostile.conftest import API, Live
from tests.hostile.test_events import run_of_generate
from tests.support.waiting import wait_until


def kept(live: Live) -> gradio_answers.Answers:
    """What the server keeps for those who have not come yet; nobody else is there."""
    queue: Any = live.page._queue
    found: gradio_answers.Answers = queue.pending_messages_per_session
    assert isinstance(found, gradio_answers.Answers)
    assert set(queue.pending_event_ids_session) <= set(found)
    return found


def test_a_run_ends_whose_answer_nobody_fetches(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its messages are dropped, and whoever comes too late is told so at once; a run that is read goes on beside it."""
    monkeypatch.setattr(gradio_answers, "UNREAD_SECONDS", 2.0)
    wait_until(lambda: not kept(live), seconds=120)  # what earlier tests left has its own time
    monkeypatch.setattr(live.service, "pause", 0.1)
    index, data = run_of_generate(live, "a question")
    assert live.post("queue/join", index, data, "nobody").status_code == 200
    wait_until(lambda: live.service.active == 1)
    wait_until(lambda: live.service.active == 0)
    assert "nobody" not in kept(live)
    monkeypatch.setattr(live.service, "pause", 0.02)
    late = live.send("GET", f"{API}/queue/data", params={"session_hash": "nobody"})
    assert 'session_not_found":true' in late.text
    unknown = live.send("GET", f"{API}/call/generate/nobody").text
    assert "There is no such answer here" in unknown
    assert live.event(index, data, "somebody")["success"]
    wait_until(lambda: not kept(live))
    assert kept(live).bytes == 0


def test_unread_answers_share_a_budget(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond it the oldest goes, whether it has ended or not; an answer that is being read stays."""
    index, data = run_of_generate(live, "a question")
    assert live.post("queue/join", index, data, "guest 0").status_code == 200
    wait_until(lambda: all(map(kept(live).is_over, kept(live).events("guest 0"))))
    size = kept(live)["guest 0"].bytes
    monkeypatch.setattr(gradio_answers, "UNREAD_BYTES", 3 * size)
    for number in range(1, 6):
        assert live.post("queue/join", index, data, f"guest {number}").status_code == 200
        assert kept(live).bytes <= 3 * size
    assert live.event(index, data, "somebody")["success"]
    wait_until(lambda: live.service.active == 0)
    assert "guest 0" not in kept(live)
    assert kept(live).bytes == sum(box.bytes for box in kept(live).values()) <= 3 * size


def test_a_stream_ends_though_another_event_was_to_be_cancelled(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gradio cancels by session and function, but tells the end of the event that is named."""
    index, data = run_of_generate(live, "a question")
    monkeypatch.setattr(live.service, "pause", 0.1)
    assert live.post("queue/join", index, data, "erring").status_code == 200
    wait_until(lambda: live.service.active == 1)
    cancelled = {"session_hash": "erring", "fn_index": index, "event_id": "another"}
    assert live.send("POST", f"{API}/cancel", json=cancelled).status_code == 200
    stream = live.send("GET", f"{API}/queue/data", params={"session_hash": "erring"})
    assert "close_stream" in stream.text
