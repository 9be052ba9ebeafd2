"""ZeroGPU: inactive elsewhere, sane durations, and a service whose runs pass between two processes.

There is no GPU and no second process: a stand-in for the `spaces` package pickles arguments and items, as its worker does.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from specviz.engine.events import Decided, Finished
from specviz.errors import BusyError, EngineError, PairError, RequestError
from specviz.models.registry import PAIRS, PairSpec
from specviz.schema.settings import Request
from specviz.schema.trace import Run, parse_trace
from specviz.serving import zerogpu, zerogpu_service
from specviz.serving.limits import Limits
from specviz.serving.zerogpu_service import ZeroGpuService
from tests.support.tiny import tiny_pair


@pytest.fixture
def lending(monkeypatch: pytest.MonkeyPatch) -> None:
    """ZeroGPU is active."""

    def lend(
        work: Callable[..., Iterator[Any]], duration: Callable[..., int]
    ) -> Callable[..., Iterator[Any]]:
        def stream(*args: Any) -> Iterator[Any]:
            assert zerogpu.LEAST <= duration(*args) <= zerogpu.MOST
            for item in work(*pickle.loads(pickle.dumps(args))):
                yield pickle.loads(pickle.dumps(item))

        return stream

    monkeypatch.setitem(sys.modules, "spaces", SimpleNamespace(GPU=lend, __spec__="installed"))
    monkeypatch.setattr(os, "environ", os.environ | {"SPACES_ZERO_GPU": "true"})
    zerogpu.start()


def test_elsewhere_nothing_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without ZeroGPU a function stays the same function, and loading goes on in several threads."""
    monkeypatch.setitem(sys.modules, "spaces", SimpleNamespace(__spec__="installed"))
    for said, active in (("true", True), ("1", True), ("false", False), ("", False)):
        monkeypatch.setenv("SPACES_ZERO_GPU", said)
        assert zerogpu.active() is active
    zerogpu.start()
    assert zerogpu.on_gpu(asked, lambda: 60) is asked
    assert "HF_DEACTIVATE_ASYNC_LOAD" not in os.environ


def asked(tokens: int, characters: int, texts: int, parameters: int) -> int:
    return zerogpu.seconds(
        [Request(prompt="x" * characters, max_new_tokens=tokens)] * texts, parameters=parameters
    )


def lent(title: str) -> Exception:
    """An error of ZeroGPU's."""
    error = ValueError("not for the page")
    vars(error).update(title=title, message="Come back in an hour.")
    return error


@pytest.mark.usefixtures("lending")
@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (lent("ZeroGPU worker error"), EngineError, "ask for fewer tokens"),
        (lent("ZeroGPU quota exceeded"), BusyError, "Come back in an hour"),
        (lent("Error"), EngineError, "No GPU could be had"),
        (RequestError("The prompt is too long."), RequestError, "too long"),
    ],
)
def test_a_failure_on_a_gpu_is_a_sentence_after_what_was_written(
    error: Exception, kind: type[Exception], words: str
) -> None:
    """ZeroGPU's words about queues and quotas and errors of ours are passed on, other words are not."""

    def fails() -> Iterator[str]:
        yield "begun"
        raise error

    assert os.environ["SPECVIZ_GPU_RUNNER"] == "torch"
    items = zerogpu.on_gpu(fails, lambda: 60)()
    assert next(items) == "begun"
    with pytest.raises(kind, match=words):
        next(items)
    assert list(zerogpu.on_gpu(lambda: (each for each in "ab"), lambda: 60)()) == ["a", "b"]


def test_more_work_gets_more_time_within_bounds() -> None:
    most, least = (512, 4000, 4, PAIRS["qwen2.5"].loaded_parameters), (16, 100, 1, 150_000_000)
    assert asked(*least) == zerogpu.LEAST
    assert asked(*most) == zerogpu.MOST
    for at in range(4):
        assert zerogpu.LEAST < asked(*least[:at], 50 * most[at], *least[at + 1 :]) <= zerogpu.MOST


def test_a_pair_that_cannot_be_loaded_is_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A hub that is down at the start costs the pair, not the server."""

    def load(spec: PairSpec, *_: object, **__: object) -> str:
        if spec.key == "smollm2":
            raise PairError("The hub is down.")
        return spec.key

    monkeypatch.setattr("specviz.models.loading.load_pair", load)
    pairs = {key: PAIRS[key] for key in ("embedded", "smollm2")}
    monkeypatch.setattr(zerogpu_service, "offered_pairs", lambda: pairs)
    monkeypatch.setattr(zerogpu_service, "_held", {})
    ZeroGpuService(Limits()).warm_up("embedded")
    assert zerogpu_service._held == {"embedded": "embedded"}
    assert [record.fields for record in caplog.records] == [{"pair": "smollm2"}]  # type: ignore[attr-defined]


@pytest.mark.usefixtures("lending")
def test_a_service_writes_the_text_of_its_pair(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One run, two side by side, and one that is stopped."""
    pair = tiny_pair("llama", tmp_path)
    monkeypatch.setattr(zerogpu_service, "_held", {"embedded": pair})
    on_gpu = zerogpu.on_gpu(zerogpu_service._serve, lambda key, requests, seconds: seconds)
    monkeypatch.setattr(zerogpu_service, "_on_gpu", on_gpu)
    service, stop = ZeroGpuService(Limits()), threading.Event()
    request = Request(prompt="The quick brown fox", seed=3, max_new_tokens=12)
    expected = pair.generate("The quick brown fox", seed=3, max_new_tokens=12)
    assert isinstance(expected, Run)
    assert parse_trace(service.lines("embedded", request, stop)).token_ids == expected.token_ids
    lines = [line for line in service.compare_lines(["embedded"] * 2, [request, request], stop) if line]
    for pane in (0, 1):
        of_pane = [line for line in lines if json.loads(line).get("pane") == pane]
        assert parse_trace(of_pane).token_ids == expected.token_ids
    rounds, ends = 0, []
    for event in service.events("embedded", [replace(request, max_new_tokens=400)], stop):
        rounds += isinstance(event, Decided)
        if rounds == 2:
            stop.set()
        if isinstance(event, Finished):
            ends.append((event.run.stop_reason, 0 < len(event.run.tokens) < 400))
    assert (ends, rounds) == ([("cancelled", True)], 2)
    assert service.status()[0].finished == {"length": 3, "cancelled": 1}
    with pytest.raises(PairError, match="no model pair of that name"):
        list(service.lines("gpt2", request, stop))
    with pytest.raises(RequestError, match="tokens; here it may have 3"):
        list(ZeroGpuService(Limits(max_prompt_tokens=3)).lines("embedded", request, stop))
    with pytest.raises(RequestError, match="longer than a GPU is lent"):
        service.sweep()
