"""A visitor with the page open in a browser: Run, its chain of events, the growing view, Stop.

Knows gradio's protocol between page and server, the DOM ids of the page's controls, and the lines of a view.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any

import httpx
from gradio_client.utils import apply_diff

from specviz.errors import EngineError, SpecvizError
from specviz.schema.settings import Request
from specviz.tools.loadtest.client import Client, Event, Received, server_error

_SETTINGS = (
    *("prompt", "method", "lenience", "draft_length", "temperature"),
    *("top_k", "top_p", "min_p", "repetition_penalty", "max_new_tokens", "seed"),
)


class PageClient(Client):
    """The tab One run of the page."""

    _heartbeat: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Fetch the page, and keep the connection by which the server knows that the tab is open."""
        await self._http.get("/")
        if self._config.heartbeat:
            self._heartbeat = asyncio.create_task(self._keep_heartbeat())

    async def close(self, *, abruptly: bool = False) -> None:
        """Close all streams, the heartbeat included."""
        await super().close(abruptly=abruptly)
        if self._heartbeat:
            self._heartbeat.cancel()
            await asyncio.wait({self._heartbeat})

    async def ask(self, request: Request) -> AsyncGenerator[Received, None]:
        """Set the controls, press Run and follow its chain of events depth first."""
        self._controls = {name.replace("_", "-"): getattr(request, name) for name in _SETTINGS}
        self._controls["pair"] = self._pair
        # As the track in the page sends it.
        self._controls["lenience"] = json.dumps({"method": request.method, "lenience": request.lenience})
        view, failure = _View(), None
        pending = [self._config.event("run", "click")]
        while pending:
            event, failed = pending.pop(0), False
            try:
                if event["queue"]:
                    async with aclosing(self._follow(event, view)) as stream:
                        async for received in stream:
                            yield received
                else:
                    await self._send("/run/predict", event)
            except SpecvizError as error:
                failure, failed = failure or error, True
            pending = self._config.following(event, failed) + pending
        if failure:
            raise failure

    async def stop(self) -> None:
        """Press Stop."""
        await self._send("/run/predict", self._config.event("stop", "click"))

    async def _send(self, path: str, event: Event) -> Any:
        name, value = self._config.name, self._config.value
        data = [self._controls.get(name(each), value(each)) for each in event["inputs"]]
        return await self._post(path, data=data, fn_index=event["id"], event_data=None, trigger_id=None)

    async def _follow(self, event: Event, view: _View) -> AsyncGenerator[Received, None]:
        """Queue an event and read its output into the view."""
        joined = await self._send("/queue/join", event)
        position = [self._config.name(each) for each in event["outputs"]].index("view")
        values: list[Any] | None = None
        async with self._events(f"/queue/data?session_hash={self.session}") as messages:
            async for message in messages:
                answer = message.json()
                if answer.get("event_id") != joined["event_id"]:
                    if answer.get("msg") == "unexpected_error":
                        raise EngineError(f"The server ended it: {answer.get('message')}")
                    continue
                is_last = answer["msg"] == "process_completed"
                if is_last or answer["msg"] == "process_generating":
                    output = answer.get("output") or {}
                    if not answer.get("success"):
                        raise EngineError(f"The server failed: {output.get('error')}")
                    if data := output.get("data"):  # whole at first and at the end, as differences in between
                        is_whole = values is None or is_last
                        values = data if is_whole else list(map(apply_diff, values or [], data))
                    if values:
                        view.update(values[position] or "")
                yield view.received
                if is_last:
                    break
        view.check_end()

    async def _keep_heartbeat(self) -> None:
        with suppress(httpx.HTTPError, httpx.StreamError, SpecvizError):  # the text's own stream reports it
            async with self._events(f"/heartbeat/{self.session}") as beats:
                async for _ in beats:
                    pass


class _View:
    """The view's value: JSON lines, parsed as they come."""

    def __init__(self) -> None:
        self.received = Received()
        self._value, self._error = "", ""

    def update(self, value: str) -> None:
        """Parse what is new; a value that does not begin with the previous one replaces it."""
        received = self.received
        if not value.startswith(self._value):
            self._value, received.text, received.tokens = "", "", 0
        for line in map(json.loads, filter(None, value[len(self._value) :].split("\n"))):
            if line["type"] == "run":
                received.started = True
            elif line["type"] == "round":
                received.text += "".join(token["text"] for token in line["tokens"])
                received.tokens += len(line["tokens"])
            elif line["type"] == "end":
                received.stop_reason = line["stop_reason"]
            elif line["type"] == "error":
                self._error = line["message"]
        self._value = value

    def check_end(self) -> None:
        """Raise BusyError or EngineError if the view shows an error, or no end."""
        if self._error:
            raise server_error(self._error)
        self.received.check_end()
