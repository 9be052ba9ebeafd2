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
from urllib.parse import urlsplit

from specviz.core.methods import METHODS
from specviz.errors import RequestError, SpecvizError
from specviz.schema.settings import Request

_RANGES = {
    "users": (1, 1000),
    "seconds": (1, 86400),
    "requests": (1, 1_000_000),
    "think": (0, 3600),
    "cancel": (0, 1),
    "close": (0, 1),
    "distinct": (1, 1000),
}
_PROMPTS = (
    "Why is the sky blue? Explain it to a curious child.",
    "Write a short story about a lighthouse keeper who finds a message in a bottle.",
    "Write a Python function that checks whether a word is a palindrome.",
    "A train travels 60 miles in 1.5 hours. What is its average speed? Show your steps.",
    "Give three reasons to learn a second language.",
    "What is the difference between weather and climate?",
    "Describe how bread is made, from the flour to the oven.",
    "List five animals that sleep in winter, with a sentence about each.",
)
_TOKENS = (16, 32, 64, 128)
_TEMPERATURES = (0.7, 1.0, 0.0)
_PATIENCE_SECONDS = 120
"""Seconds for which unfinished texts may continue after the load ends."""


@dataclass(frozen=True)
class LoadTest:
    """The settings of a load test.

    Attributes:
        address: address of the server, such as http://127.0.0.1:7860.
        users: number of simulated users.
        seconds: after this time no request is sent; unfinished texts are read to their end.
        requests: after this many requests no further one is sent; None sets no limit.
        think: mean seconds between two requests of one user.
        cancel, close: shares of requests that are cancelled, or whose connection is closed, midway.
        seed: seed of everything random.
        pair: key of the model pair.
        distinct: number of different requests.
        anywhere: whether the server may be on another machine.

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
                raise RequestError(f"{name}: {value:g} was asked for; from {low} to {high} can be.")
        if self.cancel + self.close > 1:
            raise RequestError("The shares to cancel and to close come to more than 1.")
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
        """Run locust, which prints its report and writes it to the files. Returns locust's exit status.

        Raises:
            SpecvizError: locust is not installed.
        """
        if find_spec("locust") is None:
            raise SpecvizError("A load test needs locust: pip install 'specviz[loadtest]'.")
        options = {
            "--locustfile": Path(__file__).with_name("locustfiles") / "users.py",
            "--host": self.address,
            "--users": self.users,
            "--spawn-rate": min(100.0, self.users / max(self.think, 1.0)),
            "--stop-timeout": _PATIENCE_SECONDS,
            "--loglevel": "WARNING",
            "--plan": json.dumps(asdict(self)),
            "--results": json_file,
            "--html": html_file,
        }
        command = [sys.executable, "-m", "locust", "--headless", "--only-summary"]
        command += [str(word) for option in options.items() if option[1] is not None for word in option]
        return subprocess.run(command).returncode


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def distinct_requests(count: int, seed: int) -> list[Request]:
    """`count` different requests: all methods and prompts in turn, each with its own seed. They depend only on `seed`."""
    draw, methods, requests = random.Random(seed), list(METHODS.values()), []
    for index in range(count):
        method = methods[index % len(methods)]
        low, high = method.offered_range if method.has_lenience else (0.0, 0.0)
        requests.append(
            Request(
                prompt=_PROMPTS[index % len(_PROMPTS)],
                method=method.name,
                lenience=round(low + draw.choice((0.25, 0.5, 0.75)) * (high - low), 4),
                temperature=_TEMPERATURES[index % len(_TEMPERATURES)],
                seed=1000 * index + draw.randrange(1000),
                max_new_tokens=draw.choice(_TOKENS),
            )
        )
    return requests
