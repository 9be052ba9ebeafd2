"""What SpecViz takes from huggingface_hub beyond its documentation is still there and still does what it did."""

from __future__ import annotations

import huggingface_hub
import pytest
from huggingface_hub.utils import get_session

HERE = f"huggingface_hub {huggingface_hub.__version__}"


def test_a_network_that_fails_raises_the_transport_error() -> None:
    try:
        from specviz.compat.huggingface_hub import TransportError
    except (ImportError, AttributeError):
        pytest.fail(
            f"{HERE} no longer says which HTTP package it uses (huggingface_hub.utils.httpx): find what its client "
            "raises when the network fails, else an unreachable hub is reported as an unexpected error."
        )
    try:
        get_session().head("http://127.0.0.1:9", timeout=5)
    except TransportError:
        return
    except Exception as error:
        pytest.fail(
            f"{HERE} raises {type(error).__name__} when the network fails, no longer {TransportError.__name__}: put "
            "it into specviz.compat.huggingface_hub, else an unreachable hub is reported as an unexpected error."
        )
    pytest.fail("Something answers on port 9 of this machine: this test needs a port where nothing does.")
