"""What is asked of a load test. Knows no server."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from specviz.errors import RequestError

WAYS = ("page", "api")


@dataclass(frozen=True)
class Plan:
    """How many visitors do what, for how long.

    Attributes:
        address: of the server, such as http://127.0.0.1:7860.
        users: visitors at once.
        seconds: for so long new requests are asked; None is until there were `requests`, or 300 where that is None too.
        requests: after so many no more are asked; None sets no limit.
        think: seconds between two requests of one visitor, on average.
        cancel, close, kill: the shares of requests that are stopped midway, whose tab is closed, and whose connections
            are reset; together at most 1.
        seed: of everything random.
        through: "page", as a browser asks, or "api", by the endpoint `generate`.
        pair: the model pair that is asked for.
        distinct: different requests.
        again: ask them alone once more when all is over.
        pid: of the server's process, to watch its memory and its threads.
        anywhere: allow a server that is not on this machine.

    Raises:
        RequestError: for any value out of its range, with a sentence that says what is right.
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
        for name, value, low, high in (
            ("Users", self.users, 1, 1000),
            ("Seconds", 1 if self.seconds is None else self.seconds, 1, 86400),
            ("Requests", 1 if self.requests is None else self.requests, 1, 1_000_000),
            ("Seconds to think", self.think, 0, 3600),
            *((f"The share to {name}", getattr(self, name), 0, 1) for name in ("cancel", "close", "kill")),
            ("Distinct requests", self.distinct, 1, 1000),
        ):
            if not low <= value <= high:
                raise RequestError(f"{name}: {value:g} was asked for; from {low} to {high} can be.")
        if self.cancel + self.close + self.kill > 1:
            raise RequestError("The shares to cancel, to close and to kill come to more than 1.")
        if self.through not in WAYS:
            raise RequestError(f"{self.through!r} is no way to ask: {' and '.join(WAYS)} are.")
        self._check_address()

    def _check_address(self) -> None:
        try:
            parts = urlsplit(self.address)
            host = parts.hostname if parts.scheme in ("http", "https") else None
        except ValueError:
            host = None
        if not host:
            raise RequestError("The server's address must be like http://127.0.0.1:7860.")
        if not (self.anywhere or _is_here(host)):
            raise RequestError(
                f"{host} is not this machine, and a load test is a burden: only with --anywhere is it put on others."
            )


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
