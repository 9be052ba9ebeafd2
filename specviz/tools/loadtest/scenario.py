"""What a load test does, and the requests its visitors choose from. Knows no server."""

from __future__ import annotations

import ipaddress
import random
from dataclasses import dataclass
from urllib.parse import urlsplit

from specviz.core.methods import METHODS
from specviz.errors import RequestError
from specviz.schema.settings import Request

WAYS = ("page", "api")
_RANGES = {
    "users": ("Users", 1, 1000),
    "seconds": ("Seconds", 1, 86400),
    "requests": ("Requests", 1, 1_000_000),
    "think": ("Seconds to think", 0, 3600),
    "cancel": ("The share to cancel", 0, 1),
    "close": ("The share to close", 0, 1),
    "kill": ("The share to kill", 0, 1),
    "distinct": ("Distinct requests", 1, 1000),
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


@dataclass(frozen=True)
class Scenario:
    """How many visitors do what, for how long.

    Attributes:
        address: of the server, such as http://127.0.0.1:7860.
        users: concurrent visitors.
        seconds: no new requests after this long; None runs until there were `requests`, or 300 s if that is None too.
        requests: no new requests after so many; None sets no limit.
        think: mean seconds between two requests of one visitor.
        cancel, close, kill: shares of requests that are cancelled midway, whose tab is closed, and whose connections
            are reset; together at most 1.
        seed: of everything random.
        through: "page", as a browser asks, or "api", by the endpoint `generate`.
        pair: key of the model pair.
        distinct: number of different requests.
        again: ask each of them alone once more after the load.
        pid: of the server's process, to watch its memory and threads.
        anywhere: allow a server on another machine.

    Raises:
        RequestError: a value is out of range.
    """

    address: str
    users: int = 30
    seconds: int | None = None
    requests: int | None = None
    think: float = 5.0
    cancel: float = 0.1
    close: float = 0.1
    kill: float = 0.0
    seed: int = 0
    through: str = "page"
    pair: str = "embedded"
    distinct: int = 24
    again: bool = False
    pid: int | None = None
    anywhere: bool = False

    def __post_init__(self) -> None:
        if self.seconds is None and self.requests is None:
            object.__setattr__(self, "seconds", 300)
        for name, (title, low, high) in _RANGES.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise RequestError(f"{title}: {value:g} was asked for; from {low} to {high} can be.")
        if self.cancel + self.close + self.kill > 1:
            raise RequestError("The shares to cancel, to close and to kill come to more than 1.")
        if self.through not in WAYS:
            raise RequestError(f"{self.through!r} is no way to ask: {' and '.join(WAYS)} are.")
        try:
            parts = urlsplit(self.address)
            host = parts.scheme in ("http", "https") and parts.hostname
        except ValueError:
            host = None
        if not host:
            raise RequestError("The server's address must be like http://127.0.0.1:7860.")
        if not (self.anywhere or _is_loopback(host)):
            raise RequestError(
                f"{host} is not this machine, and a load test is a burden: only with --anywhere is it put on others."
            )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def distinct_requests(count: int, seed: int) -> list[Request]:
    """`count` different requests: all methods and prompts in turn, each with its own coins; the same for one `seed`."""
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
