"""What SpecViz takes from huggingface_hub beyond its documentation still does what it did."""

from __future__ import annotations

import pytest
from huggingface_hub.utils import get_session

from specviz.compat.huggingface_hub import TransportError


def test_a_network_that_fails_raises_the_transport_error() -> None:
    """Otherwise an unreachable hub is reported as an unexpected error."""
    with pytest.raises(TransportError):
        get_session().head("http://127.0.0.1:9", timeout=5)
