"""The endpoint `generate`, as a program asks it over HTTP. Knows its parameters and gradio's two routes for a call."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from specviz.errors import EngineError
from specviz.schema.settings import Request
from specviz.tools.loadtest.site import Site
from specviz.tools.loadtest.sse import events
from specviz.tools.loadtest.tab import Seen, Tab, refused

if TYPE_CHECKING:
    import httpx

_NAME = "generate"


class ApiTab(Tab):
    """A program's session."""

    def __init__(self, client: httpx.AsyncClient, site: Site, pair: str) -> None:
        super().__init__(client)
        self._site, self._pair = site, pair
        self._index = site.endpoint(_NAME)["id"]
        self._event, self._stopped = "", False

    async def ask(self, request: Request) -> AsyncGenerator[Seen, None]:
        """Call the endpoint and read what it streams."""
        data = [
            *(request.prompt, request.method, request.lenience, self._pair, request.draft_length),
            *(request.temperature, request.top_k, request.top_p, request.seed, request.max_new_tokens),
            *(0, False),  # no inspection, no trace
        ]
        address, self._stopped = f"{self._site.prefix}/call/{_NAME}", False
        self._event = (await self._post(address, {"data": data, "session_hash": self.session}))["event_id"]
        seen = Seen()
        async with self._listen(f"{address}/{self._event}") as response:
            async for name, told in events(response):
                values = json.loads(told)
                if name == "error":
                    sentence = values.get("error") if isinstance(values, dict) else values
                    raise refused(sentence or "The server failed and did not say why.")
                if values:
                    seen.text, seen.tokens = values[0]["text"], values[0]["tokens"]
                    seen.started = seen.started or not values[0]["place"]
                    seen.stop_reason = values[0]["stop_reason"]
                yield seen
                if name == "complete":
                    break
        if self._stopped and not seen.stop_reason:
            seen.stop_reason = "cancelled"  # by gradio, which lets nothing more through
        if not seen.stop_reason:
            raise EngineError("The text ended without an end.")

    async def stop(self) -> None:
        """Cancel the call, as gradio_client does."""
        self._stopped = True
        body = {"fn_index": self._index, "session_hash": self.session, "event_id": self._event}
        await self._post(f"{self._site.prefix}/cancel", body)
