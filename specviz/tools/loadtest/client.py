"""One session on a server: its HTTP connections, what gradio's config says, and a program that calls `generate`.

Knows gradio's HTTP API and the parameters of the endpoint; the page's protocol is `page_client`'s.
"""

from __future__ import annotations

import json
import secrets
import socket
import struct
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

import httpx
from httpx_sse import EventSource, ServerSentEvent

from specviz.errors import BusyError, EngineError, SpecvizError
from specviz.schema.settings import Request, arguments

Event = dict[str, Any]
"""One of gradio's "dependencies": a function of the server, its inputs and outputs, and what triggers it."""
_ENDPOINT: Literal["generate"] = "generate"
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER on, 0 seconds: close() sends RST instead of FIN


@dataclass
class Received:
    """A text so far. `started`: it has left the queue. `stop_reason` is "" until it ends."""

    text: str = ""
    tokens: int = 0
    started: bool = False
    stop_reason: str = ""

    def check_end(self) -> None:
        """Raise EngineError if the stream ended without a stop reason."""
        if not self.stop_reason:
            raise EngineError("The text ended without an end.")


class ServerConfig:
    """What gradio's `/config` says, read once: components by their DOM ids, and which event triggers which."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.prefix: str = config.get("api_prefix", "")
        self.heartbeat: bool = bool(config.get("connect_heartbeat"))
        self._events: list[Event] = config["dependencies"]
        self._components = {each["id"]: each["props"] for each in config["components"]}

    @classmethod
    async def fetch(cls, http: httpx.AsyncClient) -> ServerConfig:
        """Read it from the server.

        Raises:
            SpecvizError: no SpecViz answers.
        """
        try:
            return cls((await http.get("/config")).raise_for_status().json())
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            raise SpecvizError(
                f"No SpecViz answers there ({type(error).__name__}): start one with `python app.py` and give its address."
            ) from error

    def name(self, component: int) -> str:
        """A component's `elem_id`, "" if it has none."""
        return self._components[component].get("elem_id") or ""

    def value(self, component: int) -> Any:
        """A component's initial value."""
        return self._components[component].get("value")

    def event(self, name: str, kind: str) -> Event:
        """The server's first event of `kind`, such as "click", on the component `name`; SpecvizError if there is none."""
        return self._find(
            lambda event: (
                event["backend_fn"]
                and any(each and (self.name(each), what) == (name, kind) for each, what in event["targets"])
            ),
            f"This page has no {name!r} with the event {kind!r}: it is not this version's.",
        )

    def endpoint(self, name: str) -> Event:
        """The event with this public API name; SpecvizError if there is none."""
        return self._find(
            lambda event: event.get("api_name") == name and event.get("api_visibility") != "private",
            f"This server offers no endpoint {name!r}.",
        )

    def following(self, event: Event, failed: bool) -> list[Event]:
        """The events chained to an event; after a failure, as a browser does, only those for failures."""
        return [
            each
            for each in self._events
            if each.get("trigger_after") == event["id"]
            and each["backend_fn"]
            and bool(each.get("trigger_only_on_failure")) == failed
        ]

    def _find(self, fits: Callable[[Event], bool], otherwise: str) -> Event:
        if found := next(filter(fits, self._events), None):
            return found
        raise SpecvizError(otherwise)


class Client(ABC):
    """One session of one visitor on a server."""

    def __init__(self, http: httpx.AsyncClient, config: ServerConfig, pair: str) -> None:
        self.session = secrets.token_hex(6)
        self._http, self._config, self._pair = http, config, pair
        self._streams: set[httpx.Response] = set()

    async def open(self) -> None:  # noqa: B027 (the API has nothing to open)
        """What is done once, before the first request."""

    @abstractmethod
    def ask(self, request: Request) -> AsyncGenerator[Received, None]:
        """Send a request and yield what has been received at every event; always the same, growing object.

        Raises:
            BusyError: the server refused.
            EngineError: the server failed.
            httpx.HTTPError, ValueError: the connection failed; a response could not be parsed.
        """

    @abstractmethod
    async def stop(self) -> None:
        """Ask the server to abort the text that is being received."""

    async def close(self, *, abruptly: bool = False) -> None:
        """Close all streams without telling the server; `abruptly` resets their connections."""
        while self._streams:
            response = self._streams.pop()
            stream = response.extensions.get("network_stream")
            sock = stream.get_extra_info("socket") if stream and abruptly else None
            if sock is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            await response.aclose()

    async def _post(self, path: str, **body: Any) -> Any:
        """Post to a path below the API's prefix, with the session's hash; returns the parsed answer."""
        body["session_hash"] = self.session
        response = await self._http.post(self._config.prefix + path, json=body)
        await _check(response)
        return response.json()

    @asynccontextmanager
    async def _events(self, path: str) -> AsyncIterator[AsyncIterator[ServerSentEvent]]:
        """The server-sent events of a path below the API's prefix."""
        async with self._http.stream("GET", self._config.prefix + path) as response:
            await _check(response)
            self._streams.add(response)
            try:
                yield EventSource(response).aiter_sse()
            finally:
                self._streams.discard(response)


class ApiClient(Client):
    """A program's session: it calls the endpoint `generate`."""

    def __init__(self, http: httpx.AsyncClient, config: ServerConfig, pair: str) -> None:
        super().__init__(http, config, pair)
        self._call = {"fn_index": config.endpoint(_ENDPOINT)["id"]}
        self._stopped = False

    async def ask(self, request: Request) -> AsyncGenerator[Received, None]:
        """Call the endpoint and read its stream."""
        own = {"prompt": request.prompt, "pair": self._pair, "inspect": 0, "trace": False}
        data = [own[name] if name in own else getattr(request, name) for name in arguments(_ENDPOINT)]
        self._stopped, received = False, Received()
        self._call |= await self._post(f"/call/{_ENDPOINT}", data=data)
        async with self._events(f"/call/{_ENDPOINT}/{self._call['event_id']}") as events:
            async for event in events:
                values = event.json()
                if event.event == "error":
                    sentence = values.get("error") if isinstance(values, dict) else values
                    raise server_error(sentence or "The server failed and did not say why.")
                if values:
                    received.text, received.tokens = values[0]["text"], values[0]["tokens"]
                    received.started = received.started or not values[0]["queue_position"]
                    received.stop_reason = values[0]["stop_reason"]
                yield received
                if event.event == "complete":
                    break
        if self._stopped and not received.stop_reason:
            received.stop_reason = "cancelled"  # gradio itself sends nothing after a cancellation
        received.check_end()

    async def stop(self) -> None:
        """Cancel the call, as gradio_client does."""
        self._stopped = True
        await self._post("/cancel", **self._call)


async def _check(response: httpx.Response) -> None:
    """Raise BusyError or EngineError, with the server's sentence if it gave one, unless the status is 200."""
    if response.status_code == 200:
        return
    try:
        answer = json.loads(await response.aread())
        sentence = answer.get("detail") or answer.get("error")
    except (ValueError, AttributeError):
        sentence = None
    message = f"HTTP {response.status_code}" + (f": {sentence}" if isinstance(sentence, str) else "")
    raise (BusyError if response.status_code in (429, 503) else EngineError)(message)


def server_error(sentence: str) -> Exception:
    """The exception for a server's sentence: BusyError for a refusal under load, EngineError otherwise."""
    return BusyError(sentence) if "busy" in sentence.lower() else EngineError(sentence)
