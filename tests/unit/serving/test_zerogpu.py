"""ZeroGPU: inactive elsewhere, sane durations, and a service whose runs pass between two processes.

There is no GPU and no second process: a stand-in for the `spaces` package pickles arguments and items, as its worker does.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from specviz.engine.events import Decided, Finished
from specviz.environment import on_zero_gpu
from specviz.errors import BusyError, EngineError, PairError, RequestError
from specviz.models.registry import PAIRS, PairSpec
from specviz.models.tokenizer import encoding
from specviz.schema.settings import Request
from specviz.schema.trace import Run, parse_trace
from specviz.serving import zerogpu
from specviz.serving.limits import Limits
from specviz.serving.zerogpu import ZeroGpuService
from tests.support.tiny import tiny_pair


@pytest.fixture(autouse=True)
def lending(monkeypatch: pytest.MonkeyPatch) -> None:
    """ZeroGPU is active."""

    def lend(
        work: Callable[..., Iterator[Any]], duration: Callable[..., int]
    ) -> Callable[..., Iterator[Any]]:
        def stream(*args: Any) -> Iterator[Any]:
            assert zerogpu.LEAST <= duration(*args) <= zerogpu.MOST
            for item in work(*pickle.loads(pickle.dumps(args))):
                time.sleep(0.02)  # the worker's engine goes on meanwhile
                yield pickle.loads(pickle.dumps(item))

        return stream

    monkeypatch.setitem(sys.modules, "spaces", SimpleNamespace(GPU=lend, __spec__="installed"))
    monkeypatch.setattr(os, "environ", os.environ | {"SPACES_ZERO_GPU": "true"})


def test_it_is_active_where_the_space_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for said, active in (("true", True), ("1", True), ("false", False), ("", False)):
        monkeypatch.setenv("SPACES_ZERO_GPU", said)
        assert on_zero_gpu() is active
    zerogpu.start()
    assert os.environ["SPECVIZ_GPU_RUNNER"] == "torch"


@pytest.mark.parametrize(
    ("title", "kind", "words"),
    [
        ("ZeroGPU worker error", EngineError, "fewer tokens"),
        ("ZeroGPU quota exceeded", BusyError, "Come back in an hour"),
        ("Error", EngineError, "No GPU could be had"),
    ],
)
def test_a_failure_on_a_gpu_is_a_sentence_after_what_was_written(
    title: str, kind: type[Exception], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ZeroGPU's words about queues and quotas are passed on, other words are not."""
    error = ValueError("not for the page")
    vars(error).update(title=title, message="Come back in an hour.")

    def fails(*_: Any) -> Iterator[Any]:
        yield 0, "begun"
        raise error

    monkeypatch.setattr(zerogpu, "_serve", fails)
    items = ZeroGpuService(Limits())._lent("embedded", [Request(prompt="x")])
    assert next(items) == (0, "begun")
    with pytest.raises(kind, match=words):
        next(items)


def test_more_work_gets_more_time_within_bounds() -> None:
    def asked(tokens: int, texts: int, parameters: int) -> int:
        requests = [Request(prompt="x", max_new_tokens=tokens)] * texts
        return zerogpu.seconds(requests, parameters=parameters)

    most, least = (1024, 4, PAIRS["qwen2.5"].loaded_parameters), (16, 1, 150_000_000)
    assert asked(*least) == zerogpu.LEAST
    assert asked(*most) == zerogpu.MOST
    for at in range(3):
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
    monkeypatch.setattr(zerogpu, "offered_pairs", lambda: pairs)
    monkeypatch.setattr(zerogpu, "_held", {})
    ZeroGpuService(Limits()).warm_up("embedded")
    assert zerogpu._held == {"embedded": "embedded"}
    assert [record.fields for record in caplog.records] == [{"pair": "smollm2"}]  # type: ignore[attr-defined]


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork")
def test_a_worker_can_encode_whatever_a_thread_does_while_it_is_forked() -> None:
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with encoding:
            held.set()
            release.wait()

    threading.Thread(target=hold).start()
    held.wait()
    threading.Timer(0.1, release.set).start()
    if (worker := os.fork()) == 0:
        os._exit(not encoding.acquire(blocking=False))
    assert os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) == 0


def test_a_service_writes_the_text_of_its_pair(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One run, two side by side, and one that is stopped."""
    pair = tiny_pair("llama", tmp_path)
    monkeypatch.setattr(zerogpu, "_held", {"embedded": pair})
    service, stop = ZeroGpuService(Limits()), threading.Event()
    request = Request(prompt="The quick brown fox", seed=3, max_new_tokens=12)
    expected = pair.generate("The quick brown fox", seed=3, max_new_tokens=12)
    assert isinstance(expected, Run)
    assert parse_trace(service.lines("embedded", request, stop)).token_ids == expected.token_ids
    *_, end = service.events("embedded", [request], stop)
    assert [each.index for each in end.run.rounds] == [*range(len(expected.rounds))]
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
    assert service.status()[0].finished == {"length": 4, "cancelled": 1}
    with pytest.raises(PairError):
        list(service.lines("gpt2", request, stop))
    with pytest.raises(RequestError, match=r"tokens.*\b3\b"):
        list(ZeroGpuService(Limits(max_prompt_tokens=3)).lines("embedded", request, stop))
    with pytest.raises(RequestError, match="no id of this pair"):  # the worker says so
        list(service.lines("embedded", Request(token_ids=[10**6]), threading.Event()))
    with pytest.raises(RequestError, match="longer than a GPU is lent"):
        service.sweep()
