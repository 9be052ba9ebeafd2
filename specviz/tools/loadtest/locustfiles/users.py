"""The simulated users, run by locust.

Locust patches the standard library, so this file is in no package: nothing may import it accidentally. It reads the settings
and the requests as JSON from standard input.

Before the load, every request is sent alone. Under load, every text must equal the text of its request sent alone; a cancelled
text must be a prefix of that text. All random choices of a user come from the user's seed.
"""

from __future__ import annotations

import json
import random
import secrets
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
from httpx_sse import EventSource
from locust import User, events, task
from locust.env import Environment
from locust.exception import StopUser

from specviz.errors import BusyError, EngineError
from specviz.progress import TerminalProgress

_SILENCE_SECONDS = 60.0
"""Read timeout: a server that streams sends a heartbeat every 15 seconds."""
_WHOLE = ("eos", "length", "context")
"""Stop reasons of a finished text."""
_ENDPOINT = "generate"
_NOTHING: dict[str, Any] = {"text": "", "tokens": 0, "stop_reason": ""}
"""A text of which nothing has arrived. Its stop reason is "" until it ends."""

_given = json.load(sys.stdin)
_plan = SimpleNamespace(**_given["plan"])
_requests: list[list[Any]] = _given["requests"]
"""The arguments of each distinct request."""
_expected: list[dict[str, Any]] = []
"""The answers to the requests sent alone."""
_counts: Counter[str] = Counter()
"""Totals over all users: `asked` (requests), `texts`, `wrong` (texts) and `tokens`."""
_numbers = count(1)
_progress = TerminalProgress(sys.stderr)
_begin = 0.0
"""When the load began, by `time.perf_counter`; 0 before, and if a request sent alone failed."""


class Session:
    """A client's session with the server, through gradio's HTTP API."""

    function = 0
    """The number of the endpoint, which gradio needs for cancelling."""

    def __init__(self) -> None:
        self._name = {"session_hash": secrets.token_hex(6)}
        # No proxy, since the server itself is measured.
        address = f"{_plan.address.rstrip('/')}/gradio_api"
        self._http = httpx.Client(base_url=address, timeout=_SILENCE_SECONDS, trust_env=False)

    def ask(self, request: list[Any]) -> Iterator[dict[str, Any]]:
        """Call the endpoint. Yields the answer so far. Raises BusyError if the server refuses, EngineError if it fails."""
        answer = self._http.post(f"/call/{_ENDPOINT}", json={"data": request} | self._name)
        self._event = answer.raise_for_status().json()
        with self._http.stream("GET", f"/call/{_ENDPOINT}/{self._event['event_id']}") as response:
            for event in EventSource(response.raise_for_status()).iter_sse():
                values = event.json()
                if event.event == "error":
                    sentence = str(values.get("error") if isinstance(values, dict) else values)
                    raise BusyError(sentence) if "busy" in sentence.lower() else EngineError(sentence)
                if values:
                    yield values[0]
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
    seconds = _plan.seconds  # --run-time would include the requests sent alone
    try:
        page = httpx.get(f"{_plan.address.rstrip('/')}/config", trust_env=False).raise_for_status().json()
        [Session.function] = [each["id"] for each in page["dependencies"] if each["api_name"] == _ENDPOINT]
        session = Session()
        for index, request in enumerate(_requests):
            _progress(0.0, f"One user alone: request {index + 1} of {_plan.distinct}")
            received = list(session.ask(request))[-1]
            if received["stop_reason"] not in _WHOLE:
                raise EngineError(f"Alone, request {index} ended as {received['stop_reason']!r}.")
            _expected.append(received)
        _begin = time.perf_counter()
    except Exception as error:  # whatever another server answers
        print(f"{_plan.address} does not serve a request: {error}", file=sys.stderr)
        environment.process_exit_code, seconds = 1, 0
    end = threading.Timer(seconds, runner.quit)
    end.daemon = True
    end.start()


@events.quitting.add_listener
def _sum_up(environment: Environment, **_: Any) -> None:
    """Print the results that locust does not count, and write all results."""
    if not _counts["texts"]:
        return
    _progress(1.0, "Done")
    seconds = time.perf_counter() - _begin
    rate = _counts["tokens"] / seconds
    print(f"{_counts['texts']} texts, {_counts['wrong']} of them wrong; {rate:.1f} tokens/s together.")
    results: dict[str, Any] = {"texts": _counts["texts"], "wrong": _counts["wrong"], "seconds": seconds}
    results |= {"tokens_per_second": rate, "plan": _given["plan"]}
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


class SimulatedUser(User):
    """A user that waits, sends a request, reads the text, sometimes cancels it, and begins again."""

    def on_start(self) -> None:
        """Seed the user, open a session, and wait once."""
        self._random = random.Random(f"{_plan.seed} {next(_numbers)}")
        self._session = Session()
        time.sleep(self.wait_time())

    def wait_time(self) -> float:
        """Seconds until the next request."""
        return self._random.expovariate(1 / _plan.think) if _plan.think else 0.0

    @task
    def ask(self) -> None:
        """Send a request, read its text to the end or cancel it, and check the text. Stops the user once the load has ended."""
        runner = self.environment.runner
        has_ended = not _begin or _counts["asked"] == _plan.requests
        if not runner or has_ended or runner.state in ("stopping", "stopped"):
            raise StopUser
        _counts["asked"] += 1
        index = self._random.randrange(_plan.distinct)
        shares = {"cancelled": _plan.cancel, "closed": _plan.close}
        shares["finished"] = 1 - sum(shares.values())
        (intent,) = self._random.choices(list(shares), list(shares.values()))
        received, failure, has_begun, begin = _NOTHING, None, False, time.perf_counter()
        try:
            for received in self._read(index, intent):
                if received["tokens"] and not has_begun:
                    has_begun = True
                    self._report("first token", begin)
            _check(index, received, intent)
        except Exception as error:
            failure = error
        _counts.update(texts=1, tokens=received["tokens"])
        if isinstance(failure, BusyError):
            self._report("refused", begin)
        else:
            self._report(f"a text, {intent}", begin, received["tokens"], failure)
        done = (time.perf_counter() - _begin) / _plan.seconds
        _progress(min(0.99, done), f"{_plan.users} users: {_counts['texts']} texts")
        if _counts["texts"] == _plan.requests:
            threading.Thread(target=runner.quit, daemon=True).start()  # this ends this user, too

    def _read(self, index: int, intent: str) -> Iterator[dict[str, Any]]:
        """Yield the answer so far, repeatedly. `intent` is "finished" to read to the end; "cancelled" and "closed" leave midway."""
        patience = float("inf")
        if intent != "finished":  # the number of tokens after which the user leaves, 0 before the first
            patience = self._random.randrange(max(1, _expected[index]["tokens"]))
        for received in self._session.ask(_requests[index]):
            yield received
            if received["tokens"] >= patience:
                patience = float("inf")
                if intent == "closed":
                    self._session.close()
                    self._session = Session()
                    break
                self._session.cancel()

    def _report(self, name: str, begin: float, tokens: int = 0, failure: Exception | None = None) -> None:
        """Report a time, or a failure, to locust."""
        milliseconds = 1000 * (time.perf_counter() - begin)
        own = {"request_type": "", "name": name, "response_time": milliseconds, "response_length": tokens}
        self.environment.events.request.fire(**own, exception=failure)


def _check(index: int, received: dict[str, Any], intent: str) -> None:
    """Raise EngineError unless the text equals that of the request sent alone; if the user left or time ran out, a prefix is enough."""
    text, expected = received["text"], _expected[index]["text"]
    is_whole = received["stop_reason"] in _WHOLE
    # Running out of the server's time limit is no failure.
    if intent == "finished" and not is_whole and received["stop_reason"] != "time":
        raise EngineError(f"A text ended as {received['stop_reason']!r}.")
    if text != (expected if is_whole else expected[: len(text)]):
        _counts["wrong"] += 1
        raise EngineError(f"Request {index} got another text than alone.")
