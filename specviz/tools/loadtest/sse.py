"""Server-sent events, taken from a response that is still coming. Knows nothing of what they say."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx


async def events(response: httpx.Response) -> AsyncIterator[tuple[str, bytes]]:
    """Yield the name (often "") and the data of every event.

    Not by `aiter_lines`: for that, a line also ends at U+2028 and the like, which may stand inside a text.
    """
    pending = b""
    async for chunk in response.aiter_bytes():
        *whole, pending = (pending + chunk).split(b"\n\n")
        for event in whole:
            name, data = "", b""
            for line in event.split(b"\n"):
                field, _, value = line.partition(b":")
                if field == b"event":
                    name = value.strip().decode()
                elif field == b"data":
                    data += value.strip()
            yield name, data
