"""Draws the requests of a load test, and runs `locustfiles/users.py` with locust in another process."""

from __future__ import annotations

import ipaddress
import json
import random
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from specviz.core.methods import METHODS
from specviz.errors import RequestError, SpecvizError
from specviz.schema.settings import Request, arguments
from specviz.tools.distill.prompts import held_out_prompts

_TOKENS = (16, 32, 64, 128)
_TEMPERATURES = (0.7, 1.0, 0.0)
_PATIENCE_SECONDS = 120
"""Seconds for which unfinished texts may continue after the load ends."""


def run(plan: dict[str, Any], json_file: Path | None = None, html_file: Path | None = None) -> int:
    """Run a load test; `plan` has the options of `specviz loadtest`. locust prints its report and writes it to the files.

    The load ends after `seconds`, or earlier after `requests` requests if given. Unfinished texts are then read to their end.

    Returns:
        The exit status of locust.

    Raises:
        RequestError: the server is not on this machine and `anywhere` is not set, or `cancel` and `close` add up to more than 1.
        SpecvizError: locust is not installed.
    """
    if plan["cancel"] + plan["close"] > 1:
        raise RequestError("--cancel and --close add up to more than 1.")
    if not (plan["anywhere"] or _is_here(plan["address"])):
        raise RequestError(
            "The server's address must be one of this machine, like http://127.0.0.1:7860: "
            "only --anywhere puts a load on another one."
        )
    if find_spec("locust") is None:
        raise SpecvizError("A load test needs locust: pip install locust.")
    options = {
        "--locustfile": Path(__file__).with_name("locustfiles") / "users.py",
        "--host": plan["address"],
        "--users": plan["users"],
        "--spawn-rate": min(100.0, plan["users"] / max(plan["think"], 1.0)),
        "--stop-timeout": _PATIENCE_SECONDS,
        "--loglevel": "WARNING",
    }
    command = [sys.executable, "-m", "locust", "--headless", "--only-summary"]
    command += [str(word) for option in options.items() for word in option]
    if html_file:
        command += ["--html", str(html_file)]
    drawn = distinct_requests(plan["distinct"], plan["seed"])
    own, names = {"pair": plan["pair"], "trace": False}, arguments("generate")
    requests = [[own[each] if each in own else getattr(one, each) for each in names] for one in drawn]
    given = {"plan": plan, "requests": requests, "results": str(json_file) if json_file else None}
    return subprocess.run(command, input=json.dumps(given), text=True).returncode


def _is_here(address: str) -> bool:
    """Whether the host of a URL is localhost or a loopback address."""
    try:
        host = urlsplit(address).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def distinct_requests(count: int, seed: int) -> list[Request]:
    """`count` different requests: all methods in turn, each request with another seed. Equal arguments give equal requests."""
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
