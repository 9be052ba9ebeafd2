"""The simulated users, run by locust.

This file is in no package, so that nothing imports it accidentally, since locust patches the standard library. It reads the
settings and the requests as JSON from standard input.

Before the load, every request is sent alone. Under load, every text must equal the one written alone; a cancelled text
must be a beginning of it. All random choices of a user come from its own seed.

In a soak, users come through all doors (`doors.py`). What the server holds at rest after a tenth of the requests is compared
with what it holds at rest at the end.
"""

from __future__ import annotations

import json
import random
import secrets
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
from httpx_sse import EventSource
from locust import User, events, task
from locust.env import Environment
from locust.exception import StopUser

from specviz.errors import BusyError, EngineError, SpecvizError
from specviz.progress import TerminalProgress
from specviz.tools.loadtest.doors import Doors, failure_of
from specviz.tools.loadtest.server_process import held, listening_process

_SILENCE_SECONDS = 60.0
"""Read timeout: a server that streams sends a heartbeat every 15 seconds."""
_SHARE_BEFORE_FIRST_TOKEN = 0.25
"""Share of cancelled texts that are cancelled before the first token."""
_WHOLE = ("eos", "length", "context")
"""Stop reasons of a finished text."""
_MOST_GROWTH = 1.05
"""Largest allowed ratio of what the server holds at the end of a soak to what it held after a tenth of the requests."""
_NOTHING: dict[str, Any] = {"text": "", "tokens": 0, "stop_reason": ""}
"""A text of which nothing has arrived. Its stop reason is "" until it ends."""

_given = json.load(sys.stdin)
_plan = SimpleNamespace(**_given["plan"])
_endpoint: str = _given["endpoint"]
_requests: list[list[Any]] = _given["requests"]
"""The arguments of each distinct request."""
_expected: list[dict[str, Any]] = []
"""The answers to the requests sent alone."""
_alone: dict[tuple[str, int], Any] = {}
"""What each door returned for each request when nothing else was running."""
_config: dict[str, Any] = {}
"""The page, as gradio describes it."""
_processes: list[psutil.Process] = []
"""The server's process, in a soak."""
_held: list[dict[str, int]] = []
"""What the server held after a tenth of the requests, and at the end."""
_rested = threading.Event()
"""Set once the server has been measured after a tenth of the requests; the other requests wait for it."""
_counts: Counter[str] = Counter()
"""Totals over all users: `asked` (requests), `texts`, `wrong` (texts) and `tokens`."""
_numbers = count(1)
_progress = TerminalProgress(sys.stderr)
_begin = 0.0


class Session:
    """A session of a program on the server, through gradio's HTTP API.

    Attributes:
        function: the number of the endpoint, which gradio needs for cancelling.
    """

    function = 0

    def __init__(self) -> None:
        self._name = {"session_hash": secrets.token_hex(6)}
        # No proxy, since the server itself is measured.
        address = f"{_plan.address.rstrip('/')}/gradio_api"
        self._http = httpx.Client(base_url=address, timeout=_SILENCE_SECONDS, trust_env=False)

    def ask(self, request: list[Any]) -> Iterator[dict[str, Any]]:
        """Call the endpoint. Yields the answer so far, with its text, tokens and stop reason.

        Raises:
            BusyError: the server refused.
            EngineError: the server failed.
            httpx.HTTPError: the connection failed.
        """
        answer = self._http.post(f"/call/{_endpoint}", json={"data": request} | self._name)
        self._event = answer.raise_for_status().json()
        received = _NOTHING
        with self._http.stream("GET", f"/call/{_endpoint}/{self._event['event_id']}") as response:
            for event in EventSource(response.raise_for_status()).iter_sse():
                values = event.json()
                if event.event == "error":
                    sentence = str(values.get("error") if isinstance(values, dict) else values)
                    raise failure_of(sentence)
                received = values[0] if values else received
                yield received
                if event.event == "complete":
                    break

    def cancel(self) -> None:
        """Cancel the call; gradio then ends its stream."""
        self._http.post("/cancel", json=self._event | self._name | {"fn_index": self.function})

    def close(self) -> None:
        """Close the connections without telling the server."""
        self._http.close()


@events.test_start.add_listener
def _ask_alone(environment: Environment, **_: Any) -> None:
    """Send every request alone. Locust starts its users afterwards."""
    global _begin
    runner = environment.runner
    assert runner
    try:
        _config.update(
            httpx.get(f"{_plan.address.rstrip('/')}/config", trust_env=False).raise_for_status().json()
        )
        [Session.function] = [each["id"] for each in _config["dependencies"] if each["api_name"] == _endpoint]
        session = Session()
        for index, request in enumerate(_requests):
            _progress(0.0, f"One user alone: request {index + 1} of {_plan.distinct}")
            received = list(session.ask(request))[-1]
            if received["stop_reason"] not in _WHOLE:
                raise EngineError(f"Alone, request {index} ended as {received['stop_reason']!r}.")
            _expected.append(received)
        if _plan.soak:
            url = urlsplit(_plan.address)
            _processes.append(listening_process(url.port or 80))
            doors = _doors()
            for name, index in product(Doors.NAMES, range(_plan.distinct)):
                _progress(0.0, f"One user alone: {name} {index + 1} of {_plan.distinct}")
                _alone[name, index] = getattr(doors, name)(index)
        _begin = time.perf_counter()
        end = threading.Timer(_plan.seconds, runner.quit)  # --run-time would include the requests sent alone
    except (SpecvizError, httpx.HTTPError, ValueError, LookupError) as error:
        print(f"{_plan.address} does not serve a request: {error}", file=sys.stderr)
        environment.process_exit_code = 1
        end = threading.Timer(0, runner.quit)
    end.daemon = True
    end.start()


def _doors() -> Doors:
    """The doors of a soak, for one user."""
    traces = [each["trace"] for each in _expected]
    return Doors(_given["plan"], _endpoint, _requests, traces, _config)


def _look(then: Callable[[], Any]) -> None:
    """In a soak, let the server rest and measure what it holds. Then call `then`."""
    if _plan.soak:
        _progress(0.99, f"The server rests for {_plan.soak:g} s")
        time.sleep(_plan.soak)
        _held.append(held(_processes[0]))
    then()


@events.quitting.add_listener
def _sum_up(environment: Environment, **_: Any) -> None:
    """Print the results that locust does not count, and write all results."""
    if not _counts["texts"]:
        return
    _progress(1.0, "Done")
    seconds = time.perf_counter() - _begin
    rate = _counts["tokens"] / seconds
    print(f"{_counts['texts']} texts, {_counts['wrong']} of them wrong; {rate:.1f} tokens/s together.")
    results: dict[str, Any] = {name: _counts[name] for name in ("texts", "wrong")}
    results |= {"seconds": seconds, "tokens_per_second": rate, "plan": _given["plan"], "held": _held}
    for name in _held[0] if len(_held) == 2 else ():
        before, after = (each[name] for each in _held)
        growth = after / max(1, before)
        print(f"{name}: {before} after a tenth of the requests, {after} at the end ({growth - 1:+.1%})")
        if growth > _MOST_GROWTH:
            environment.process_exit_code = 1
    results["milliseconds"] = {
        each.name: {
            "count": each.num_requests,
            "failures": each.num_failures,
            "p50": each.get_response_time_percentile(0.5),
            "p95": each.get_response_time_percentile(0.95),
        }
        for each in environment.stats.entries.values()
    }
    results["errors"] = {
        f"{one.name}: {one.error}": one.occurrences for one in environment.stats.errors.values()
    }
    if _given["results"]:
        Path(_given["results"]).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def _tenth() -> int:
    return int(_plan.requests) // 10


class SimulatedUser(User):
    """A user that waits, sends a request, reads the text, sometimes cancels it, and begins again."""

    def on_start(self) -> None:
        """Give the user its own seed."""
        self._random = random.Random(f"{_plan.seed} {next(_numbers)}")
        self._session = Session()
        self._doors = _doors() if _plan.soak else None
        time.sleep(self.wait_time())

    def wait_time(self) -> float:
        """Seconds until the next request."""
        return self._random.expovariate(1 / _plan.think) if _plan.think else 0.0

    @task
    def ask(self) -> None:
        """Send one request through the API or a door, and check the answer. Stops the user once the load has ended."""
        runner = self.environment.runner
        if not runner or runner.state in ("stopping", "stopped") or _counts["asked"] == _plan.requests:
            raise StopUser
        _counts["asked"] += 1
        if _plan.soak and _counts["asked"] > _tenth():
            _rested.wait()
        index = self._random.randrange(_plan.distinct)
        name = self._random.choice(["", *(Doors.NAMES if self._doors else ())])
        if name:
            self._come_through(name, index)
        else:
            self._call(index)
        if _counts["texts"] == _plan.requests:
            threading.Thread(
                target=_look, args=[runner.quit], daemon=True
            ).start()  # this ends this user, too
        elif _plan.soak and _counts["texts"] == _tenth():
            threading.Thread(target=_look, args=[_rested.set], daemon=True).start()

    def _come_through(self, name: str, index: int) -> None:
        """Send a request through a door of a soak, and compare the answer with the one that it got alone."""
        begin, failure = time.perf_counter(), None
        try:
            if getattr(self._doors, name)(index) != _alone[name, index]:
                _counts["wrong"] += 1
                raise EngineError(f"Request {index} got another answer than alone.")
        except Exception as error:
            failure = error
        _counts["texts"] += 1
        is_refused = isinstance(failure, BusyError)
        self._report("refused" if is_refused else name, begin, failure=None if is_refused else failure)

    def _call(self, index: int) -> None:
        """Send one request through the API, read its text to the end or cancel it, and compare the text."""
        shares = {
            "cancelled": _plan.cancel,
            "closed": _plan.close,
            "finished": 1 - _plan.cancel - _plan.close,
        }
        (intent,) = self._random.choices(list(shares), list(shares.values()))
        expected, received = _expected[index]["text"], _NOTHING
        failure: Exception | None = None
        begin = time.perf_counter()
        try:
            received = self._read(index, intent, begin)
            is_whole = received["stop_reason"] in _WHOLE
            if received["stop_reason"] == "time":  # the server's time limit, which is not a failure
                intent = "out of time"
            elif intent == "finished" and not is_whole:
                raise EngineError(f"A text ended as {received['stop_reason']!r}.")
            if received["text"] != (expected if is_whole else expected[: len(received["text"])]):
                _counts["wrong"] += 1
                raise EngineError(f"Request {index} got another text than alone.")
        except Exception as error:
            failure = error
        _counts.update(texts=1, tokens=received["tokens"])
        if isinstance(failure, BusyError):
            self._report("refused", begin)
        else:
            self._report(f"a text, {intent}", begin, received["tokens"], failure)
        done = (time.perf_counter() - _begin) / _plan.seconds
        _progress(min(0.99, done), f"{_plan.users} users: {_counts['texts']} texts")

    def _read(self, index: int, intent: str, begin: float) -> dict[str, Any]:
        """Read the answer to its end, or cancel or close it midway; returns the last that was received."""
        received, has_begun, patience = _NOTHING, False, float("inf")
        if intent != "finished":  # the number of tokens after which the user cancels
            is_early = self._random.random() < _SHARE_BEFORE_FIRST_TOKEN
            patience = 0 if is_early else 1 + self._random.randrange(max(1, _expected[index]["tokens"] - 1))
        for received in self._session.ask(_requests[index]):
            if received["tokens"] and not has_begun:
                has_begun = True
                self._report("first token", begin)
            if received["tokens"] >= patience:
                patience = float("inf")
                if intent == "closed":
                    self._session.close()
                    self._session = Session()
                    break
                self._session.cancel()
        return received

    def _report(self, name: str, begin: float, tokens: int = 0, failure: Exception | None = None) -> None:
        """Report a time, or a failure, to locust."""
        milliseconds = 1000 * (time.perf_counter() - begin)
        own = {"request_type": "", "name": name, "response_time": milliseconds, "response_length": tokens}
        self.environment.events.request.fire(**own, exception=failure)
