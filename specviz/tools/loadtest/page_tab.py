"""The page in a tab, as a browser speaks to the server: Run, its chain of events, the view as it grows, Stop.

Knows gradio's protocol between page and server, the ids of the page's controls, and the lines of a view.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

from specviz.errors import EngineError, SpecvizError
from specviz.schema.settings import Request
from specviz.tools.loadtest.site import Event, Site
from specviz.tools.loadtest.sse import events
from specviz.tools.loadtest.tab import Seen, Tab, refused

if TYPE_CHECKING:
    import httpx

_SETTINGS = (
    "prompt",
    "method",
    "lenience",
    "draft_length",
    "temperature",
    "top_k",
    "top_p",
    "max_new_tokens",
    "seed",
)


class PageTab(Tab):
    """The tab Generate of the page."""

    def __init__(self, client: httpx.AsyncClient, site: Site, pair: str) -> None:
        super().__init__(client)
        self._site, self._pair = site, pair
        self._alive: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Fetch what the page is made of, and keep the connection by which the server knows that the tab is open."""
        await self._client.get("/")
        if self._site.heartbeat:
            self._alive = asyncio.create_task(self._stay_alive())

    async def leave(self, *, abruptly: bool = False) -> None:
        """As every tab; whoever listened for the server's sign of life listens no longer."""
        await super().leave(abruptly=abruptly)
        if self._alive:
            self._alive.cancel()
            await asyncio.wait({self._alive})

    async def ask(self, request: Request) -> AsyncGenerator[Seen, None]:
        """Set the controls and press Run."""
        controls = {name.replace("_", "-"): getattr(request, name) for name in _SETTINGS} | {
            "pair": self._pair
        }
        view = _View()
        # The slider's range goes with the method, and the server remembers it for each session.
        await self._fire(self._site.event("method", "input"), controls)
        async with aclosing(self._follow(self._site.event("run", "click"), controls, view)) as seen:
            async for each in seen:
                yield each

    async def stop(self) -> None:
        """Press Stop."""
        await self._fire(self._site.event("stop", "click"), {})

    async def _follow(
        self, event: Event, controls: dict[str, Any], view: _View
    ) -> AsyncGenerator[Seen, None]:
        """Let an event happen, and all that comes of it; yields what a stream has brought into the view."""
        failure = None
        if event["queue"]:
            try:
                async with aclosing(self._stream(event, controls, view)) as seen:
                    async for each in seen:
                        yield each
            except EngineError as error:
                failure = error
        else:
            await self._fire(event, controls)
        for following in self._site.after(event, failure is not None):
            async with aclosing(self._follow(following, controls, view)) as seen:
                async for each in seen:
                    yield each
        if failure:
            raise failure

    async def _fire(self, event: Event, controls: dict[str, Any]) -> None:
        await self._post(f"{self._site.prefix}/run/predict", self._body(event, controls))

    def _body(self, event: Event, controls: dict[str, Any]) -> dict[str, Any]:
        name, value = self._site.name, self._site.value
        data = [controls[name(each)] if name(each) in controls else value(each) for each in event["inputs"]]
        told = {"data": data, "fn_index": event["id"], "session_hash": self.session}
        return told | {"event_data": None, "trigger_id": None}

    async def _stream(
        self, event: Event, controls: dict[str, Any], view: _View
    ) -> AsyncGenerator[Seen, None]:
        from gradio_client.utils import apply_diff

        joined = await self._post(f"{self._site.prefix}/queue/join", self._body(event, controls))
        at = [self._site.name(each) for each in event["outputs"]].index("view")
        values: list[Any] | None = None
        async with self._listen(f"{self._site.prefix}/queue/data?session_hash={self.session}") as response:
            async for _, data in events(response):
                told = json.loads(data)
                if told.get("event_id") != joined["event_id"]:
                    if told.get("msg") == "unexpected_error":
                        raise EngineError(f"The server ended it: {told.get('message')}")
                    continue
                if told["msg"] in ("process_generating", "process_completed"):
                    output = (told.get("output") or {}).get("data")
                    if not told.get("success"):
                        raise EngineError(f"The server failed: {(told.get('output') or {}).get('error')}")
                    if output:
                        whole = values is None or told["msg"] == "process_completed"
                        values = output if whole else list(map(apply_diff, values or [], output))
                    if values:
                        view.take(values[at] or "")
                yield view.seen
                if told["msg"] == "process_completed":
                    break
        view.check_end()

    async def _stay_alive(self) -> None:
        import httpx

        with suppress(httpx.HTTPError, httpx.StreamError, SpecvizError):  # the text's own stream will tell
            async with self._listen(f"{self._site.prefix}/heartbeat/{self.session}") as response:
                async for _ in response.aiter_raw():
                    pass


class _View:
    """The view's value, read as it grows by whole lines."""

    def __init__(self) -> None:
        self.seen = Seen()
        self._value, self._error = "", ""

    def take(self, value: str) -> None:
        """A value that begins with the one before goes on; any other starts anew."""
        if not value.startswith(self._value):
            self._value = ""
            self.seen.text, self.seen.tokens = "", 0
        for line in value[len(self._value) :].split("\n"):
            if line:
                self._read(json.loads(line))
        self._value = value

    def _read(self, line: dict[str, Any]) -> None:
        seen = self.seen
        if line["type"] == "run":
            seen.started = True
        elif line["type"] == "round":
            seen.text += "".join(token["text"] for token in line["tokens"])
            seen.tokens += len(line["tokens"])
        elif line["type"] == "end":
            seen.stop_reason = line["stop_reason"]
        elif line["type"] == "error":
            self._error = line["message"]

    def check_end(self) -> None:
        """Make sure that a text which ended says why.

        Raises:
            BusyError, EngineError: the view shows an error, or nothing that ends a text.
        """
        if self._error:
            raise refused(self._error)
        if not self.seen.stop_reason:
            raise EngineError("The text ended without an end.")
