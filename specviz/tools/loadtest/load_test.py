"""A load test: its settings, the requests of its users, and locust, which runs `locustfiles/users.py` in its own process."""

from __future__ import annotations

import ipaddress
import json
import random
import subprocess
import sys
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from specviz.core.methods import METHODS
from specviz.errors import RequestError, SpecvizError, quoted
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
}
_TOKENS = (16, 32, 64, 128)
_TEMPERATURES = (0.7, 1.0, 0.0)
_PATIENCE_SECONDS = 120
"""Seconds for which unfinished texts may continue after the load ends."""
ENDPOINT: Literal["generate"] = "generate"
"""The endpoint of the API that users call."""


@dataclass(frozen=True)
class LoadTest:
    """The settings of a load test; `specviz loadtest --help` describes each.

    After `seconds`, or `requests` if given, no more requests are sent, and unfinished texts are read to their end.

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

    def __post_init__(self) -> None:
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise RequestError(f"{name} is {quoted(value)}; it must be from {low} to {high}.")
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
        """Run locust, which prints its report and writes it to the files. Returns its exit status.

        Raises:
            SpecvizError: locust is not installed.
        """
        if find_spec("locust") is None:
            raise SpecvizError("A load test needs locust: pip install locust.")
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
        drawn = distinct_requests(self.distinct, self.seed)
        own, names = {"pair": self.pair, "trace": False}, arguments(ENDPOINT)
        requests = [[own[each] if each in own else getattr(one, each) for each in names] for one in drawn]
        results = str(json_file) if json_file else None
        given = {"plan": asdict(self), "endpoint": ENDPOINT, "requests": requests, "results": results}
        return subprocess.run(command, input=json.dumps(given), text=True).returncode


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def distinct_requests(count: int, seed: int) -> list[Request]:
    """`count` different requests: all methods in turn, each with its own seed. They are the same for the same arguments."""
    draw, methods, prompts = random.Random(seed), list(METHODS), held_out_prompts()
    return [
        Request(
            prompt=draw.choice(prompts),
            method=methods[index % len(methods)],
            temperature=_TEMPERATURES[index % len(_TEMPERATURES)],
            seed=1000 * index + draw.randrange(1000),
            max_new_tokens=draw.choice(_TOKENS),
        )
        for index in range(count)
    ]
