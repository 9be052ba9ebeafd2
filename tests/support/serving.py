"""Serving a page for a test, as app.py does, in a thread; and ending it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import gradio as gr
import pytest

from specviz.app.page import launch
from specviz.engine.pair import Pair
from specviz.models.registry import DEFAULT_PAIR
from specviz.serving.service import Service


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(page: gr.Blocks, service: Service, *more: Any, port: int | None = None) -> str:
    """Serve a page on this machine, by default on a free port; returns its address. `more` is passed to `launch`."""
    port = port or free_port()
    launch(
        page, service, *more, server_name="127.0.0.1", server_port=port, prevent_thread_lock=True, quiet=True
    )
    return f"http://127.0.0.1:{port}"


def close(page: gr.Blocks) -> None:
    """End a page's server.

    Gradio sets an event of the server's loop from this thread, and fails if a connection ends at that moment; the
    event is set then, and only the rest remains to be done.
    """
    try:
        page.close(verbose=False)
    except RuntimeError as error:
        if "mutated during iteration" not in str(error):
            raise
        page.server.close()


@contextlib.contextmanager
def holding(service: Service, pair: Pair) -> Iterator[None]:
    """Let a service hold a pair that is loaded already as its default pair; at the end it is closed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("specviz.models.loading.load_pair", lambda *_, **__: pair)
        service.warm_up(DEFAULT_PAIR).result()
    yield
    service.close()
