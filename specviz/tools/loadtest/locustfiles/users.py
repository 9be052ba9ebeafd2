"""The simulated users, run by locust.

This file is in no package, so that nothing imports it accidentally: locust patches the standard library.

Before the load, every request is sent alone. Under load, every text must equal the one written alone; a cancelled text
must be a beginning of it. All random choices of a user come from its own seed.
"""

from __future__ import annotations

import json
import random
import secrets
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Literal, cast

import httpx
from httpx_sse import EventSource
from locust import User, events, task
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment
from locust.exception import StopUser

from specviz.errors import BusyError, EngineError, SpecvizError
from specviz.progress import TerminalProgress
from specviz.schema.settings import Request, arguments
from specviz.tools.loadtest.load_test import LoadTest, distinct_requests

_ENDPOINT: Literal["generate"] = "generate"
_SILENCE_SECONDS = 60.0
"""Read timeout: a server that streams sends a heartbeat every 15 seconds."""
_SHARE_BEFORE_FIRST_TOKEN = 0.25
"""Share of cancelled texts that are cancelled before the first token."""
_WHOLE = ("eos", "length", "context")
"""Stop reasons of a finished text."""


@dataclass
class Received:
    """A text so far; `stop_reason` is "" until it ends."""

    text: str = ""
    tokens: int = 0
    stop_reason: str = ""


class Session:
    """A session of a program on a server, through gradio's HTTP API."""

    def __init__(self, plan: LoadTest, function: int) -> None:
        """`function` is the endpoint's number, which gradio needs for cancelling."""
        self._pair, self._function = plan.pair, function
        self._name = {"session_hash": secrets.token_hex(6)}
        # No proxy, since the server itself is measured.
        self._http = httpx.Client(
            base_url=f"{plan.address.rstrip('/')}/gradio_api", timeout=_SILENCE_SECONDS, trust_env=False
        )

    def ask(self, request: Request) -> Iterator[Received]:
        """Call the endpoint `generate`. Yields the text so far, always the same growing object.

        Raises:
            BusyError: the server refused.
            EngineError: the server failed.
            httpx.HTTPError: the connection failed.
        """
        own = {"prompt": request.prompt, "pair": self._pair, "inspect": 0, "trace": False}
        data = [own[name] if name in own else getattr(request, name) for name in arguments(_ENDPOINT)]
        answer = self._http.post(f"/call/{_ENDPOINT}", json={"data": data} | self._name)
        self._event, received = answer.raise_for_status().json(), Received()
        with self._http.stream("GET", f"/call/{_ENDPOINT}/{self._event['event_id']}") as response:
            for event in EventSource(response.raise_for_status()).iter_sse():
                values = event.json()
                if event.event == "error":
                    sentence = str(values.get("error") if isinstance(values, dict) else values)
                    raise BusyError(sentence) if "busy" in sentence.lower() else EngineError(sentence)
                if values:
                    received.text, received.tokens = values[0]["text"], values[0]["tokens"]
                    received.stop_reason = values[0]["stop_reason"]
                yield received
                if event.event == "complete":
                    break

    def cancel(self) -> None:
        """Cancel the call; gradio then ends its stream."""
        self._http.post("/cancel", json=self._event | self._name | {"fn_index": self._function})

    def close(self) -> None:
        """Close the connections without telling the server."""
        self._http.close()


@dataclass
class _Shared:
    """State that all users share. `expected` has the texts that were written alone."""

    plan: LoadTest
    requests: list[Request]
    function: int = 0
    expected: list[Received] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
    begin: float = 0.0
    asked: int = 0
    texts: int = 0
    wrong: int = 0
    tokens: int = 0


_progress = TerminalProgress(sys.stderr)
_shared: _Shared


@events.init_command_line_parser.add_listener
def _add_arguments(parser: LocustArgumentParser) -> None:
    parser.add_argument("--plan", help="A LoadTest as JSON")
    parser.add_argument("--results", help="A file for the results")


@events.test_start.add_listener
def _ask_alone(environment: Environment, **_: Any) -> None:
    """Send every request alone. Locust starts its users afterwards."""
    global _shared
    plan = LoadTest(**json.loads(cast("Any", environment.parsed_options).plan))
    _shared = _Shared(plan, distinct_requests(plan.distinct, plan.seed))
    runner = environment.runner
    assert runner
    try:
        config = httpx.get(f"{plan.address.rstrip('/')}/config", trust_env=False).raise_for_status().json()
        [_shared.function] = [each["id"] for each in config["dependencies"] if each["api_name"] == _ENDPOINT]
        session = Session(plan, _shared.function)
        for index, request in enumerate(_shared.requests):
            _progress(0.0, f"One user alone: request {index + 1} of {plan.distinct}")
            received = list(session.ask(request))[-1]
            if received.stop_reason not in _WHOLE:
                raise EngineError(f"Alone, request {index} ended as {received.stop_reason!r}.")
            _shared.expected.append(received)
        _shared.begin = time.perf_counter()
        end = threading.Timer(plan.seconds, runner.quit)  # --run-time would include the requests sent alone
    except (SpecvizError, httpx.HTTPError, ValueError, KeyError) as error:
        print(f"{plan.address} does not serve a request: {error}", file=sys.stderr)
        environment.process_exit_code = 1
        end = threading.Timer(0, runner.quit)
    end.daemon = True
    end.start()


@events.quitting.add_listener
def _sum_up(environment: Environment, **_: Any) -> None:
    """Print the results that locust does not count, and write all results."""
    if not _shared.texts:
        return
    _progress(1.0, "Done")
    seconds = time.perf_counter() - _shared.begin
    rate, options = _shared.tokens / seconds, cast("Any", environment.parsed_options)
    print(f"{_shared.texts} texts, {_shared.wrong} of them wrong; {rate:.1f} tokens/s together.")
    if not options.results:
        return
    milliseconds = {
        each.name: {
            "count": each.num_requests,
            "failures": each.num_failures,
            "p50": each.get_response_time_percentile(0.5),
            "p95": each.get_response_time_percentile(0.95),
            "maximum": each.max_response_time,
        }
        for each in environment.stats.entries.values()
    }
    results: dict[str, Any] = {
        "seconds": seconds,
        "texts": _shared.texts,
        "wrong": _shared.wrong,
        "tokens_per_second": rate,
    }
    errors = {f"{each.name}: {each.error}": each.occurrences for each in environment.stats.errors.values()}
    results |= {"milliseconds": milliseconds, "errors": errors, "plan": asdict(_shared.plan)}
    Path(options.results).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


class SimulatedUser(User):
    """A user that waits, sends a request, reads the text, sometimes cancels it, and begins again."""

    def on_start(self) -> None:
        """Give the user its own seed."""
        self._random = random.Random(f"{_shared.plan.seed} {next(_shared.numbers)}")
        self._session = Session(_shared.plan, _shared.function)
        time.sleep(self.wait_time())

    def wait_time(self) -> float:
        """Seconds until the next request."""
        think = _shared.plan.think
        return self._random.expovariate(1 / think) if think else 0.0

    @task
    def ask(self) -> None:
        """Send one request, read its text to the end or cancel it, and compare the text. Does nothing once the load has ended."""
        plan, runner = _shared.plan, self.environment.runner
        if not runner or runner.state in ("stopping", "stopped") or _shared.asked == plan.requests:
            raise StopUser
        _shared.asked += 1
        index = self._random.randrange(plan.distinct)
        shares = {"cancelled": plan.cancel, "closed": plan.close, "finished": 1 - plan.cancel - plan.close}
        (intent,) = self._random.choices(list(shares), list(shares.values()))
        expected, received = _shared.expected[index], Received()
        failure: Exception | None = None
        begin = time.perf_counter()
        try:
            received = self._read(index, intent, begin)
            is_whole = received.stop_reason in _WHOLE
            if received.stop_reason == "time":  # the server's time limit, which is not a failure
                intent = "out of time"
            elif intent == "finished" and not is_whole:
                raise EngineError(f"A text ended as {received.stop_reason!r}.")
            if received.text != (expected.text if is_whole else expected.text[: len(received.text)]):
                _shared.wrong += 1
                raise EngineError(f"Request {index} got another text than alone.")
        except Exception as error:
            failure = error
        _shared.texts += 1
        _shared.tokens += received.tokens
        name = "refused" if isinstance(failure, BusyError) else f"a text, {intent}"
        self._report(name, begin, received.tokens, None if isinstance(failure, BusyError) else failure)
        done = (time.perf_counter() - _shared.begin) / plan.seconds
        _progress(min(0.99, done), f"{plan.users} users: {_shared.texts} texts")
        if _shared.texts == plan.requests:
            threading.Thread(target=runner.quit, daemon=True).start()  # this ends this user, too

    def _read(self, index: int, intent: str, begin: float) -> Received:
        """The received text, which may have been cancelled."""
        received = Received()
        patience = float("inf") if intent == "finished" else self._patience(_shared.expected[index].tokens)
        has_begun = False
        for received in self._session.ask(_shared.requests[index]):
            if received.tokens and not has_begun:
                has_begun = True
                self._report("first token", begin)
            if received.tokens >= patience:
                patience = float("inf")
                if intent == "closed":
                    self._session.close()
                    self._session = Session(_shared.plan, _shared.function)
                    break
                self._session.cancel()
        return received

    def _patience(self, tokens: int) -> int:
        """Number of tokens after which a user cancels a text of `tokens` tokens; 0 for at once."""
        if self._random.random() < _SHARE_BEFORE_FIRST_TOKEN:
            return 0
        return 1 + self._random.randrange(max(1, tokens - 1))

    def _report(self, name: str, begin: float, tokens: int = 0, failure: Exception | None = None) -> None:
        """Report a time, or a failure, to locust."""
        self.environment.events.request.fire(
            request_type="",
            name=name,
            response_time=1000 * (time.perf_counter() - begin),
            response_length=tokens,
            exception=failure,
        )
