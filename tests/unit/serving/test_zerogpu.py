"""ZeroGPU: inactive elsewhere, sane durations, and the real decorator of the `spaces` package around real runs.

There is no GPU. Stand-ins replace the service that lends one and the parts of the package that need one; the forked worker, its
queues, pickling and closing are the package's own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from specviz.errors import BusyError, EngineError, PairError, RequestError
from specviz.models.registry import PAIRS, PairSpec
from specviz.schema.settings import Request
from specviz.schema.trace import Run, parse_trace
from specviz.serving import zerogpu, zerogpu_service
from specviz.serving.limits import Limits
from specviz.serving.zerogpu_service import ZeroGpuService
from tests.support.tiny import tiny_pair

ROOT = Path(__file__).parents[3]


def test_elsewhere_nothing_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without ZeroGPU a function stays the same function, and loading goes on in several threads."""
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
    error: Exception, kind: type[Exception], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ZeroGPU's words about queues and quotas and errors of ours are passed on, other words are not."""

    def fails() -> Iterator[str]:
        yield "begun"
        raise error

    spaces = SimpleNamespace(GPU=lambda work, duration: work, __spec__="installed")
    monkeypatch.setitem(sys.modules, "spaces", spaces)
    monkeypatch.setattr(os, "environ", os.environ | {"SPACES_ZERO_GPU": "true"})
    zerogpu.start()
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


def test_a_service_writes_the_text_of_its_pair(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One run, and two side by side; without ZeroGPU every function runs where it is called."""
    pair = tiny_pair("llama", tmp_path)
    monkeypatch.setattr(zerogpu_service, "_held", {"embedded": pair})
    service, stop = ZeroGpuService(Limits()), threading.Event()
    request = Request(prompt="The quick brown fox", seed=3, max_new_tokens=12)
    expected = pair.generate("The quick brown fox", seed=3, max_new_tokens=12)
    assert isinstance(expected, Run)
    assert parse_trace(service.lines("embedded", request, stop)).token_ids == expected.token_ids
    lines = [line for line in service.compare_lines(["embedded"] * 2, [request, request], stop) if line]
    for pane in (0, 1):
        of_pane = [line for line in lines if json.loads(line).get("pane") == pane]
        assert parse_trace(of_pane).token_ids == expected.token_ids
    assert service.status()[0].finished == {"length": 3}
    with pytest.raises(PairError, match="no model pair of that name"):
        list(service.lines("gpt2", request, stop))
    with pytest.raises(RequestError, match="tokens; here it may have 3"):
        list(ZeroGpuService(Limits(max_prompt_tokens=3)).lines("embedded", request, stop))
    with pytest.raises(RequestError, match="longer than a GPU is lent"):
        service.sweep()


# Run in a process of its own: `spaces` patches torch for good.
_SERVER = """
import json, os, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

here = Path(sys.argv[1])
paths = []

class Lender(BaseHTTPRequestHandler):
    def do_POST(self):
        paths.append(self.path)
        schedule = self.path.startswith("/schedule")
        lent = {"idle": False, "nvidiaIndex": 0, "nvidiaUUID": "none", "allowToken": "t"}
        body = json.dumps(lent).encode() if schedule else b""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

server = ThreadingHTTPServer(("127.0.0.1", 0), Lender)
threading.Thread(target=server.serve_forever, daemon=True).start()
(here / "cgroup").write_text("0::/space")
os.environ |= {
    "SPACES_ZERO_GPU": "true",
    "SPACES_ZERO_DEVICE_API_URL": f"http://127.0.0.1:{server.server_port}",
    "ZEROGPU_PROC_SELF_CGROUP_PATH": str(here / "cgroup"),
}
from specviz.serving import zerogpu
assert "torch" not in sys.modules

import torch
torch.set_num_threads(1)
if torch.version.cuda is None:  # what a build of torch without CUDA lacks
    torch.version.cuda, torch._C._cuda_init, torch.cuda._is_in_bad_fork = "12.8", None, bool
zerogpu.start()
import spaces.zero.torch
from spaces.zero.torch.patching import cuda_aliases

def move(callback=None):
    for shown, original in cuda_aliases.items():
        shown.data = original

spaces.zero.torch.init, spaces.zero.torch.move = lambda uuid: None, move

from transformers import AutoModelForCausalLM, AutoTokenizer
from specviz.engine.pair import pair_from_models
from specviz.errors import RequestError, SpecvizError
from specviz.schema.settings import Request

drafter, verifier = (
    AutoModelForCausalLM.from_pretrained(here / name, dtype=torch.float64, device_map={"": torch.device("cuda")})
    for name in ("drafter", "verifier")
)
pair = pair_from_models(drafter, verifier, AutoTokenizer.from_pretrained(here / "verifier"))
def refused(request):
    yield "begun"
    raise RequestError("The prompt is too long: shorten it.")

def outcome(function):
    items = []
    try:
        items.extend(zerogpu.on_gpu(function, lambda request: zerogpu.seconds([request], 1_000_000))(request))
    except SpecvizError as error:
        return items, type(error).__name__, str(error)

request = Request(prompt="The quick brown fox", seed=3, max_new_tokens=12)

from specviz.serving import zerogpu_service
from specviz.engine.events import Decided, Finished

zerogpu_service._held["embedded"] = pair
service = zerogpu_service.ZeroGpuService()
stop = threading.Event()
lines = list(service.lines("embedded", request, stop))
rounds, ends = 0, []
for event in service.events("embedded", [Request(prompt="The quick", seed=3, max_new_tokens=400)], stop):
    rounds += isinstance(event, Decided)
    if rounds == 2:
        stop.set()
    if isinstance(event, Finished):
        ends.append((event.run.stop_reason, len(event.run.tokens)))
found = {
    "lines": lines, "stopped": ends, "rounds": rounds, "finished": service.status()[0].finished, "refused": outcome(refused),
    "paths": [path for path in paths if path.startswith(("/schedule", "/release"))],
}
(here / "found.json").write_text(json.dumps(found))
"""


def test_through_the_real_decorator(tmp_path: Path) -> None:
    """Runs in the package's worker write what they write here; a stop and an error of ours pass between the processes."""
    pair = tiny_pair("llama", tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", _SERVER, str(tmp_path)],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads((tmp_path / "found.json").read_text())

    expected = pair.generate("The quick brown fox", seed=3, max_new_tokens=12)
    assert isinstance(expected, Run)
    assert parse_trace(found["lines"]).token_ids == expected.token_ids
    [[reason, count]] = found["stopped"]
    assert (reason, found["rounds"]) == ("cancelled", 2)
    assert 0 < count < 400
    assert found["finished"] == {"length": 1, "cancelled": 1}
    assert found["refused"] == [["begun"], "RequestError", "The prompt is too long: shorten it."]
    assert f"durationSeconds={zerogpu.LEAST}" in found["paths"][0]
    # Every GPU that was lent is given back.
    assert sum(path.startswith("/release") for path in found["paths"]) == 3
