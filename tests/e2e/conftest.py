"""The embedded pair, loaded once for all end-to-end tests."""

import pytest

from specviz.engine.engine import Engine
from specviz.models.pairs import DEFAULT_PAIR, load_pair


@pytest.fixture(scope="session")
def engine() -> Engine:
    """An engine on the default pair, in float32 on the CPU."""
    return Engine(load_pair(DEFAULT_PAIR, device="cpu", dtype="float32"))
