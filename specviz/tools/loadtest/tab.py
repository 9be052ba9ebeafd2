"""A visitor's open tab: what it has seen of a text, its session, and its connections. Knows no way to ask yet."""

from __future__ import annotations

import json
import secrets
import socket
import struct
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from specviz.errors import BusyError, EngineError
from specviz.schema.settings import Request

if TYPE_CHECKING:
    import httpx

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: on, 0 seconds


@dataclass
class Seen:
    """What there is of a text so far. `started`: it has had its turn. `stop_reason` is "" while it runs."""

    text: str = ""
    tokens: int = 0
    started: bool = False
    stop_reason: str = ""


class Tab(ABC):
    """One session of one visitor."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.session = secrets.token_hex(6)
        self._client = client
        self._listening: list[httpx.Response] = []

    async def open(self) -> None:  # noqa: B027 (not every way of asking has something to open)
        """Do what is done before anything is asked."""

    @abstractmethod
    def ask(self, request: Request) -> AsyncGenerator[Seen, None]:
        """Ask, and yield what has been seen whenever the server says something. One object, that changes.

        Raises:
            BusyError: the server refused, in a sentence.
            EngineError: the text broke off; the sentence says how.
            httpx.HTTPError, ValueError: the connection failed; what came was not understood.
        """

    @abstractmethod
    async def stop(self) -> None:
        """Ask the server to stop the text that is being read."""

    async def leave(self, *, abruptly: bool = False) -> None:
        """Close all connections that listen, without a word to the server; `abruptly` resets them."""
        while self._listening:
            response = self._listening.pop()
            stream = response.extensions.get("network_stream")
            sock = stream.get_extra_info("socket") if stream and abruptly else None
            if sock is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            await response.aclose()

    async def _post(self, path: str, body: dict[str, Any]) -> Any:
        response = await self._client.post(path, json=body)
        if response.status_code != 200:
            raise refusal(response.status_code, response.content)
        return response.json()

    @asynccontextmanager
    async def _listen(self, path: str) -> AsyncIterator[httpx.Response]:
        async with self._client.stream("GET", path) as response:
            if response.status_code != 200:
                raise refusal(response.status_code, await response.aread())
            self._listening.append(response)
            try:
                yield response
            finally:
                if response in self._listening:
                    self._listening.remove(response)


def refusal(status: int, body: bytes) -> Exception:
    """What a status other than 200 means: too much was asked for, or something failed."""
    try:
        said = json.loads(body)
        sentence = said.get("detail") or said.get("error") if isinstance(said, dict) else None
    except ValueError:
        sentence = None
    told = f"HTTP {status}" + (f": {sentence}" if isinstance(sentence, str) else "")
    return BusyError(told) if status in (429, 503) else EngineError(told)


def refused(sentence: str) -> Exception:
    """What a server's sentence means: a refusal says that there is too much to do, anything else is a failure."""
    return BusyError(sentence) if "busy" in sentence.lower() else EngineError(sentence)
