"""Hostile data for every event of the page and every endpoint, whatever they were meant for."""

from __future__ import annotations

import threading
import time
from typing import Any

import gradio as gr
import pytest

from specviz.analysis.sweep.folder import shown_sweeps
from tests.hostile.conftest import API, Live
from tests.support.traces import make_trace
from tests.support.waiting import wait_until

VALUES: tuple[Any, ...] = (None, 10**400, "<b>x", "\ud800", {"__type__": "update"})
"""No event takes any of them; gradio itself treats some specially."""


def dependencies(live: Live) -> list[dict[str, Any]]:
    """The events that the server answers."""
    return [each for each in live.page.config["dependencies"] if each.get("backend_fn", True)]


def block_of(live: Live, elem_id: str) -> int:
    """The id of a component."""
    [block] = [c["id"] for c in live.page.config["components"] if c["props"].get("elem_id") == elem_id]
    return int(block)


def find(live: Live, elem_id: str, name: str = "") -> list[dict[str, Any]]:
    """The events of a component, or those that put something into it."""
    block = block_of(live, elem_id)
    if name:
        return [d for d in dependencies(live) if any(tuple(t) == (block, name) for t in d["targets"])]
    return [d for d in dependencies(live) if block in d["outputs"]]


def data_of(live: Live, event: dict[str, Any]) -> list[Any]:
    """The data of an event as the page first sends it."""
    values = {c["id"]: c["props"].get("value") for c in live.page.config["components"]}
    return [values[each] for each in event["inputs"]]


def run_of_generate(live: Live, prompt: str) -> tuple[int, list[Any]]:
    """The event that runs on the tab One run, and its data for a prompt."""
    block = block_of(live, "prompt")
    event = next(d for d in find(live, "view") if d["queue"] and block in d["inputs"])
    data = data_of(live, event)
    data[event["inputs"].index(block)] = prompt
    return event["id"], data


def test_every_event_answers_hostile_data_with_a_4xx_and_a_sentence(live: Live) -> None:
    """No event of the page answers 5xx or with words of Python, whatever is sent as its values."""
    for event in dependencies(live):
        for value in VALUES:
            data = [value] * len(event["inputs"])
            if event["queue"]:
                result = live.event(event["id"], data, event_data=value)
                refused, answer = not result["success"], result["output"]
            else:
                sent = live.post("run/predict", event["id"], data, event_data=value)
                assert sent.status_code in (200, 422), (event["api_name"], value, sent.text)
                refused, answer = sent.status_code == 422, sent.json()
            if refused:
                sentence = answer["error"]
                assert sentence, (event["api_name"], value)
                assert not any(word in sentence for word in ("broke", "Traceback", "Error:", ".py")), sentence


def stream(live: Live, session: str, into: list[str]) -> None:
    with live.http.stream("GET", f"{API}/queue/data", params={"session_hash": session}) as lines:
        for line in lines.iter_lines():
            into.append(line)
            if '"process_completed"' in line:
                return


def test_no_session_sees_or_stops_the_run_of_another(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """What A is shown never reaches B, and B's Stop ends B's run alone."""
    [halt] = find(live, "stop", "click")
    streams: dict[str, list[str]] = {"alice": [], "bob": []}
    monkeypatch.setattr(live.service, "pause", 0.02)
    readers = []
    for name, lines in streams.items():
        index, data = run_of_generate(live, f"of {name} alone")
        assert live.post("queue/join", index, data, name).status_code == 200
        readers.append(threading.Thread(target=stream, args=(live, name, lines)))
        readers[-1].start()
    while not all(any(f"of {name} alone" in line for line in lines) for name, lines in streams.items()):
        time.sleep(0.01)
    assert live.post("run/predict", halt["id"], [], "bob").status_code == 200
    for reader in readers:
        reader.join()
    shown = {name: "\n".join(lines) for name, lines in streams.items()}
    assert "of bob alone" not in shown["alice"]
    assert "of alice alone" not in shown["bob"]
    assert ['type\\":\\"end' in shown[name] for name in ("alice", "bob")] == [True, False]


def test_the_sweep_of_one_session_is_not_shown_to_another_one(live: Live) -> None:
    """The state of a tab belongs to its session."""
    recorded = next(iter(shown_sweeps().values()))
    live.service.sweep = lambda *_, **__: iter([recorded])
    [run] = find(live, "tradeoff-run", "click")
    [show] = find(live, "tradeoff-view", "show")
    assert live.event(run["id"], data_of(live, run), "carol")["success"]
    own = {"sweep": len(shown_sweeps())}
    for session, is_there in (("carol", True), ("dave", False)):
        answer = live.post("run/predict", show["id"], [None], session, event_data=own)
        assert (answer.status_code == 200) == is_there, answer.text


def threads() -> set[str]:
    """The names of SpecViz's threads."""
    return {each.name for each in threading.enumerate() if each.name.startswith("specviz")}


def test_nothing_of_a_run_is_kept(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a run is over the server has neither its prompt, nor its text, nor a thread; gradio would keep the texts and the fork."""
    monkeypatch.setattr(live.service, "has_loaded", lambda pair: True, raising=False)
    before = threads()
    result = live.event(*run_of_generate(live, "a secret of frank's alone"), "frank")
    assert result["success"], result
    wait_until(lambda: not live.service.active and not threads() - before, seconds=10)
    [fork] = find(live, "view", "fork")
    sent = {"id": 1, "trace": make_trace().value, "tokens": 1, "chosen": None, "changes": {}}
    forked = live.event(fork["id"], [], "frank", event_data=sent)
    assert "specviz-trace" in str(forked["output"]), forked
    state = live.page.state_holder.session_data["frank"]
    common = live.page.default_config.blocks
    own = [each for key, each in state.blocks_config.blocks.items() if each is not common[key]]
    assert {type(each) for each in own} == {gr.Button}, "only Run and Stop are others than at the start"
    assert state.config_values == {}
    assert list(state.components) == []
    assert "secret" not in repr(vars(state))
