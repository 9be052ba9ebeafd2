"""Faults of the machine under a server: signals, a kill, a full disk, no file descriptors. Each server is a process with a home of its own."""

from __future__ import annotations

import os
import re
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
import psutil
import pytest

from specviz.environment import VARIABLES
from tests.support.hub_visitor import Visitor
from tests.support.serving import free_port
from tests.support.stand_in_hub import Slow, StandInHub
from tests.support.stand_in_hub.served import answers, environment
from tests.support.tiny import tiny_pair
from tests.support.waiting import wait_until

SECONDS = 300
"""To wait for words, an answer or the end before a test gives up."""
_SERVES = """
import resource, sys
for name, value in zip(sys.argv[1::2], map(int, sys.argv[2::2])):
    resource.setrlimit(getattr(resource, name), (value, resource.getrlimit(getattr(resource, name))[1]))
from specviz.models import smollm2
smollm2.GGUF_MEMBER = "of_no_package/model.gguf"
from tests.support.stand_in_hub.shell import shrink
shrink()
from specviz.app.server import main
main()
"""


@dataclass
class Server:
    """A server of one pair, as a process, and a visitor of it."""

    process: subprocess.Popen[bytes]
    make_visitor: Callable[[], Visitor]
    address: str
    log: Path

    def visitor(self) -> Visitor:
        """A visitor, once it answers."""
        wait_until(self.answers, SECONDS)
        return self.make_visitor()

    def answers(self) -> bool:
        """Whether it answers now."""
        assert self.process.poll() is None
        return answers(self.address)

    def says(self, words: str) -> None:
        """Wait for words in its log."""
        wait_until(lambda: words in self.log.read_text() or self.process.poll() is not None, SECONDS)
        assert words in self.log.read_text(), self.log.read_text()[-3000:]

    def end(self, how: signal.Signals) -> int:
        """Send a signal; the exit status, once its children have ended too."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        self.process.send_signal(how)
        status = self.process.wait(SECONDS)
        assert not psutil.wait_procs(children, SECONDS)[1]
        return status


Start = Callable[..., AbstractContextManager[Server]]
"""A function that starts a server of some pairs, by default with a log in its home, with limits of `resource` by name."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache in which loops are compiled once for all tests."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def start(hub: StandInHub, tmp_path: Path, cache: Path) -> Iterator[Start]:
    """Start servers in one home. The package index that they know never answers: a slow download."""
    tiny_pair("llama", tmp_path)
    ours = {variable.name for variable in VARIABLES}

    @contextmanager
    def started(
        pairs: str, log: Path = tmp_path / "log", cache: Path = cache, **limits: int
    ) -> Iterator[Server]:
        port = free_port()
        settings = {
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_INDEX_URL": f"http://127.0.0.1:{index.getsockname()[1]}/simple",
            "PORT": str(port),
            "SPECVIZ_CACHE": str(cache),
            "SPECVIZ_CPU_RUNNER": "torch",  # less to compile
            "SPECVIZ_MCP": "0",
            "SPECVIZ_OWN_PAIRS": f"own={tmp_path}/drafter>{tmp_path}/verifier",
            "SPECVIZ_PAIRS_OFFERED": pairs,
        }
        given = {name: value for name, value in environment(hub, tmp_path).items() if name not in ours}
        words = [str(each) for limit in limits.items() for each in limit]
        with log.open("w") as output:
            process = subprocess.Popen(
                [sys.executable, "-c", _SERVES, *words], env=given | settings, stdout=output, stderr=output
            )
        address = f"http://127.0.0.1:{port}"
        try:
            yield Server(process, partial(Visitor, hub, tmp_path, address), address, log)
        finally:
            process.kill()
            process.wait()

    with socket.create_server(("127.0.0.1", 0)) as index:
        yield started


def test_neither_a_signal_nor_a_kill_leaves_a_child_or_anything_that_is_believed(
    hub: StandInHub, start: Start, tmp_path: Path, cache: Path
) -> None:
    """While it downloads or writes. The next server deletes what was half downloaded, and works; a signal is no error.

    tests/unit/compat/test_numba.py has compiled loops that are damaged.
    """

    def half_downloaded() -> list[Path]:
        weights = "?" * 64  # large files are named by their SHA-256
        return [*tmp_path.glob(f"hub/models--*/blobs/{weights}.*.incomplete")]

    with hub.plays(Slow(100_000), "*", "*.safetensors"), start("gpt2") as server:
        wait_until(half_downloaded, SECONDS)
        server.end(signal.SIGKILL)
    left = half_downloaded()
    assert left
    with start("embedded") as server:
        server.says("Downloading")
        assert server.end(signal.SIGTERM) == 0
    assert not re.search("Traceback|ERROR", server.log.read_text())
    assert not list(cache.glob("*partial*"))
    with start("gpt2,own") as server, ThreadPoolExecutor() as pool:
        visitor = server.visitor()
        for pair in ("gpt2", "own"):
            assert visitor.write(pair)
        assert not visitor.unfinished()
        assert not [each for each in left if each.exists()]
        pool.submit(visitor.write, "own", 500)  # does not get to the end
        wait_until(lambda: httpx.get(f"{server.address}/healthz").json()["pairs"]["own"]["running"], SECONDS)
        assert server.end(signal.SIGINT) == 0
    assert "Traceback" not in server.log.read_text()  # uvicorn logs the stream that it cut off


def test_a_server_whose_disks_are_full_serves_without_a_cache_and_a_log(start: Start, tmp_path: Path) -> None:
    with start("own", Path("/dev/full"), cache=tmp_path / "cache", RLIMIT_FSIZE=100) as server:
        assert server.visitor().write("own")
        assert server.end(signal.SIGTERM) == 0
    assert not [each for each in (tmp_path / "cache").rglob("*") if each.is_file() and each.stat().st_size]


def test_a_server_without_a_folder_for_temporary_files_ends_in_a_sentence() -> None:
    limit = "import resource as it; it.setrlimit(it.RLIMIT_FSIZE, (0, 0))"
    command = [sys.executable, "-c", f"{limit}\nfrom specviz.app.server import main\nmain()"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    [sentence] = done.stderr.splitlines()
    assert sentence.startswith("No folder for temporary files can be written")


def test_a_server_works_again_after_a_full_disk_and_after_it_had_no_file_descriptors_left(
    start: Start,
) -> None:
    """A sentence for the download that did not fit, and no flood in the log."""
    with start("gpt2", RLIMIT_FSIZE=20_000, RLIMIT_NOFILE=128) as server:
        server.says("The disk is full")
        _, most = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (most, most))
        visitor = server.visitor()
        assert visitor.write("gpt2")
        assert not visitor.unfinished()
        address = ("127.0.0.1", int(server.address.rpartition(":")[2]))
        sources = [(f"127.0.0.{host}", 0) for host in range(2, 10)] * 50
        idle = [socket.create_connection(address, source_address=source) for source in sources]
        assert not server.answers()
        for each in idle:
            each.close()
        assert visitor.write("gpt2")
    assert len(server.log.read_text().splitlines()) < 100
