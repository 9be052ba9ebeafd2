"""The undocumented names of huggingface_hub that SpecViz needs, as of 2.4."""

from __future__ import annotations

from huggingface_hub.utils import httpx

TransportError = httpx.TransportError
"""What a request raises when the network fails. The hub's client lets it through unwrapped, and documents neither that
nor which package it uses: httpx since 1.0, httpx2 since 2.0. `huggingface_hub.utils.httpx` is whichever it is."""

BROKEN_OFF = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)
"""Those of them that are raised where an answer was begun and did not end."""
