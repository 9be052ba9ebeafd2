"""The undocumented name of huggingface_hub that SpecViz needs, as of 2.4."""

from __future__ import annotations

from huggingface_hub.utils import httpx

TransportError = httpx.TransportError
"""Raised by a request if the network fails. The hub's client does not wrap it, and documents neither this nor its HTTP package
(httpx since 1.0, httpx2 since 2.0), which `huggingface_hub.utils.httpx` is."""
