"""A load test: its settings, the requests of its users, and locust, which runs `locustfiles/users.py` in its own process."""

from __future__ import annotations

import ipaddress
import json
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import psutil

from specviz.core.methods import METHODS
from specviz.errors import RequestError, SpecvizError
from specviz.schema.settings import Request, arguments
from specviz.tools.distill.prompts import held_out_prompts

_RANGES = {
    "users": (1, 1000),
    "seconds": (1, 86400),
    "requests": (1, 1_000_000),
    "think": (0, 3600),
    "cancel": (0, 1),
    "close": (0, 1),
    "distinct": (1, 1000),
    "soak": (1, 3600),
}
_TOKENS = (16, 32, 64, 128)
_FEW_TOKENS = (8, 16)
"""Tokens per text in a soak."""
_TEMPERATURES = (0.7, 1.0, 0.0)
_LEAST_SOAK = 10
_MOST_GROWTH = 1.05
"""Largest allowed ratio of what the server holds at the end of a soak to what it held after a tenth of the requests."""
_PATIENCE_SECONDS = 120
"""Seconds for which unfinished texts may continue after the load ends."""
ENDPOINT: Literal["generate"] = "generate"
"""The endpoint of the API that users call."""


@dataclass(frozen=True)
class LoadTest:
    """The settings of a load test; `specviz loadtest --help` describes each.

    After `seconds`, or `requests` if given, no more requests are sent, and unfinished texts are read to their end. `soak` is the time of
    rest, in seconds, before the server's process is measured.

    Raises:
        RequestError: a value is out of range.
    """

    address: str
    users: int = 30
    seconds: int = 300
    requests: int | None = None
    think: float = 5.0
    cancel: float = 0.1
    close: float = 0.1
    seed: int = 0
    pair: str = "embedded"
    distinct: int = 24
    anywhere: bool = False
    soak: float | None = None

    def __post_init__(self) -> None:
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise RequestError(f"{name} is {value:g}; it must be from {low} to {high}.")
        if self.soak is not None and (self.requests or 0) < _LEAST_SOAK:
            raise RequestError(f"--soak needs --requests, at least {_LEAST_SOAK}.")
        if self.cancel + self.close > 1:
            raise RequestError("--cancel and --close add up to more than 1.")
        try:
            parts = urlsplit(self.address)
            host = parts.scheme in ("http", "https") and parts.hostname
        except ValueError:
            host = None
        if not host:
            raise RequestError("The server's address must be like http://127.0.0.1:7860.")
        if not (self.anywhere or _is_loopback(host)):
            raise RequestError(f"{host} is not this machine: only --anywhere puts a load on another one.")

    def run(self, json_file: Path | None = None, html_file: Path | None = None) -> int:
        """Run locust, which prints its report and writes it to the files. Returns its exit status, or 1 if the server grew in a soak.

        Raises:
            SpecvizError: locust is not installed, or no process of this user serves the address of a soak.
        """
        if find_spec("locust") is None:
            raise SpecvizError("A load test needs locust: pip install 'specviz[loadtest]'.")
        if self.soak is None or self.requests is None:
            return self._locust(self.requests, json_file, html_file)
        process, tenth, held = _listening_process(urlsplit(self.address).port or 80), self.requests // 10, []
        for part in (tenth, self.requests - tenth):
            if status := self._locust(part, json_file, html_file):
                return status
            print(f"The server rests for {self.soak:g} s", file=sys.stderr)
            time.sleep(self.soak)
            memory = process.memory_full_info()
            held.append({"rss": memory.rss, "uss": memory.uss, "threads": process.num_threads()})
            held[-1]["open_files"] = process.num_fds()
        for name, before in held[0].items():
            growth = held[1][name] / before
            told = f"{before} after a tenth of the requests, {held[1][name]} at the end"
            print(f"{name}: {told} ({growth - 1:+.1%})")
            status |= growth > _MOST_GROWTH
        return status

    def _locust(self, count: int | None, json_file: Path | None, html_file: Path | None) -> int:
        options = {
            "--locustfile": Path(__file__).with_name("locustfiles") / "users.py",
            "--host": self.address,
            "--users": self.users,
            "--spawn-rate": min(100.0, self.users / max(self.think, 1.0)),
            "--stop-timeout": _PATIENCE_SECONDS,
            "--loglevel": "WARNING",
        }
        command = [sys.executable, "-m", "locust", "--headless", "--only-summary"]
        command += [str(word) for option in options.items() for word in option]
        if html_file:
            command += ["--html", str(html_file)]
        drawn = distinct_requests(self.distinct, self.seed, _TOKENS if self.soak is None else _FEW_TOKENS)
        own, names = {"pair": self.pair, "trace": False}, arguments(ENDPOINT)
        requests = [[own[each] if each in own else getattr(one, each) for each in names] for one in drawn]
        results = str(json_file) if json_file else None
        plan = asdict(self) | {"requests": count}
        given = {"plan": plan, "endpoint": ENDPOINT, "requests": requests, "results": results}
        return subprocess.run(command, input=json.dumps(given), text=True).returncode


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listening_process(port: int) -> psutil.Process:
    for each in psutil.net_connections("tcp"):
        if each.status == psutil.CONN_LISTEN and each.laddr.port == port and each.pid:
            return psutil.Process(each.pid)
    raise SpecvizError(f"No process of yours listens on port {port} of this machine.")


def distinct_requests(count: int, seed: int, tokens: Sequence[int] = _TOKENS) -> list[Request]:
    """`count` different requests: all methods in turn, lengths from `tokens`, each with its own seed. They are the same for the same arguments."""
    draw, methods, prompts = random.Random(seed), list(METHODS), held_out_prompts()
    return [
        Request(
            prompt=draw.choice(prompts),
            method=methods[index % len(methods)],
            temperature=_TEMPERATURES[index % len(_TEMPERATURES)],
            seed=1000 * index + draw.randrange(1000),
            max_new_tokens=draw.choice(tokens),
        )
        for index in range(count)
    ]
