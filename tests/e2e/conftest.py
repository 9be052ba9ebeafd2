"""The embedded pair, loaded once for all end-to-end tests."""

import pytest

from specviz.engine.engine import Engine
from specviz.models.loading import load_pair
from specviz.models.registry import DEFAULT_PAIR


@pytest.fixture(scope="session")
def engine() -> Engine:
    """An engine on the default pair, in float32 on the CPU."""
    return Engine(load_pair(DEFAULT_PAIR, device="cpu", dtype="float32"))
