"""`specviz serve` on the stand-in hub, as a process of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx

from tests.support.serving import free_port
from tests.support.stand_in_hub.server import StandInHub
from tests.support.waiting import wait_until

SECONDS = 120
"""To wait for a server, a load or a run before a test gives up."""
ROOT = Path(__file__).parents[3]


def environment(hub: StandInHub, home: Path, **more: str) -> dict[str, str]:
    """Of a process that knows no other hub, and has in `home` what it has downloaded."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    env |= {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(home), "PYTHONPATH": str(ROOT)}
    return env | {"GRADIO_ANALYTICS_ENABLED": "False"} | more


@contextlib.contextmanager
def served(hub: StandInHub, home: Path, **more: str) -> Iterator[str]:
    """The address of the page, while it is served with `more` variables of the environment."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    with (home / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.stand_in_hub.shell", "serve"],
            env=environment(hub, home, PORT=str(port), **more),
            cwd=ROOT,
            stdout=log,
            stderr=log,
        )
        try:
            wait_until(lambda: process.poll() is not None or answers(address), SECONDS)
            assert process.poll() is None, (home / "log").read_text()[-2000:]
            yield address
        finally:
            process.terminate()
            process.wait(30)


def answers(address: str) -> bool:
    """Whether a server answers now."""
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"{address}/config", timeout=5).status_code == 200
    return False
