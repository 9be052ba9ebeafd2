"""An engine on the embedded pair, for all end-to-end tests."""

import pytest

from specviz.engine.engine import Engine
from specviz.engine.pair import Pair
from tests.support.memory import memory_given_back  # noqa: F401  # a fixture of all tests here


@pytest.fixture(scope="session")
def engine(embedded: Pair) -> Engine:
    """An engine on the default pair, in float32 on the CPU."""
    return Engine(embedded)
