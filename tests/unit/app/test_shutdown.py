"""The end of the server, as a real process in each phase of its start."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from specviz.environment import VARIABLES
from tests.support.tiny import tiny_pair

ROOT = Path(__file__).parents[3]
_SECONDS = 120
"""To wait for a phase or the end before the test gives up."""
_SERVES = """
import gradio
from specviz.app.server import serve
from specviz.models import smollm2
from specviz.serving.service import Service
smollm2._installed_gguf = lambda: None
with gradio.Blocks() as page:
    pass
serve(page, Service())
"""


@pytest.mark.parametrize(
    ("pair", "phase", "number"),
    [
        ("embedded", "Downloading", signal.SIGTERM),
        ("own", "Loading", signal.SIGINT),
        ("own", "Reading the compiled loops", signal.SIGTERM),
        ("own", "is ready", signal.SIGINT),
    ],
)
def test_a_signal_ends_the_server_and_its_children_in_every_phase(
    pair: str, phase: str, number: signal.Signals, tmp_path: Path
) -> None:
    """A package index that never answers is a slow download. What was begun is taken away."""
    names = {variable.name for variable in VARIABLES}
    environment = {name: value for name, value in os.environ.items() if name not in names}
    log, cache = tmp_path / "log", tmp_path / "cache"
    tiny_pair("llama", tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as index, socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
        environment |= {
            "HF_HUB_OFFLINE": "1",
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_INDEX_URL": f"http://127.0.0.1:{index.getsockname()[1]}/simple",
            "PORT": str(port),
            "PYTHONPATH": str(ROOT),
            "SPECVIZ_CACHE": str(cache),
            "SPECVIZ_CPU_RUNNER": "torch",  # less to compile
            "SPECVIZ_MCP": "0",
            "SPECVIZ_OWN_PAIRS": f"own={tmp_path}/drafter>{tmp_path}/verifier",
            "SPECVIZ_PAIRS_OFFERED": pair,
        }
        free.close()
        with log.open("w") as output:
            command = [sys.executable, "-c", _SERVES]
            process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
        try:
            end = time.monotonic() + _SECONDS
            while phase not in log.read_text():
                assert process.poll() is None, log.read_text()[-3000:]
                assert time.monotonic() < end
                time.sleep(0.05)
            children = psutil.Process(process.pid).children(recursive=True)
            assert bool(children) == (phase == "Downloading")
            process.send_signal(number)
            assert process.wait(_SECONDS) == 0, log.read_text()[-3000:]
        finally:
            process.kill()
    _, alive = psutil.wait_procs(children, _SECONDS)
    assert not alive
    assert not re.search("Traceback|ERROR", log.read_text())
    assert not list(cache.glob("*partial*"))
