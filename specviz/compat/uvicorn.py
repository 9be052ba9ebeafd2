"""Bounds on uvicorn's connections (0.38 to 0.54). Gradio starts uvicorn without options, and uvicorn has none for half-sent requests.

uvicorn reads `Config.http_protocol_class` for each new connection. Of uvicorn's two protocol classes these names are used: `connections`,
`transport` and `cycle`, the request that is being answered or was answered last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

REQUEST_SECONDS = 10.0
"""Seconds in which the head of a request must arrive. A connection that sends no request is closed after at most twice this time."""
STALLED_SECONDS = 60.0
"""Seconds after which a client that does not read its answer is disconnected. Until then the answer takes memory."""
_SENTENCE = b'{"detail":"This server has as many connections as it can: try again in a moment."}'
_REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\n"
    b"Retry-After: 10\r\nContent-Length: %d\r\n\r\n%b" % (len(_SENTENCE), _SENTENCE)
)


def bound_connections(config: Any, most: int, most_of_address: int, address_of: Callable[[Any], str]) -> None:
    """Limit the connections of a server with this `uvicorn.Config` to `most`, and to `most_of_address` for each address. Connections that
    send no request or read no answer are closed.

    Call it when the server has started; it applies to later connections. WebSockets, which the page does not need, are switched off.
    """
    protocol: Any = config.http_protocol_class

    class Bounded(protocol):
        address: str | None = None  # if the connection was refused

        def connection_made(self, transport: asyncio.Transport) -> None:
            address = address_of((transport.get_extra_info("peername") or ("",))[0])
            same = sum(getattr(each, "address", None) == address for each in self.connections)
            if len(self.connections) >= most or same >= most_of_address:
                transport.write(_REFUSAL)
                transport.close()
                return
            self.address = address
            super().connection_made(transport)
            self.loop.call_later(REQUEST_SECONDS, self._end_if_idle, None)

        def data_received(self, data: bytes) -> None:
            if self.address is not None:
                super().data_received(data)

        def connection_lost(self, error: Exception | None) -> None:
            if self.address is not None:
                super().connection_lost(error)

        def pause_writing(self) -> None:
            super().pause_writing()
            self.stalled = self.loop.call_later(STALLED_SECONDS, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            self.stalled.cancel()

        def _end_if_idle(self, before: Any) -> None:
            """Close the connection if no request has come since the last call, when `before` was the last request answered."""
            if self.transport.is_closing():
                return
            is_idle = self.cycle is None or self.cycle.response_complete
            if is_idle and self.cycle is before:
                self.transport.close()
            else:
                self.loop.call_later(REQUEST_SECONDS, self._end_if_idle, self.cycle if is_idle else self)

    config.http_protocol_class = Bounded
    config.ws_protocol_class = None
