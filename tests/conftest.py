"""For all tests, before anything is imported: threads that do not spin (see specviz/app/server.py), and all pairs on offer.

And the embedded pair, which is loaded once in a process.
"""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from specviz.engine.pair import Pair

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("SPECVIZ_PAIRS_OFFERED", "all")


def pytest_collection_finish() -> None:
    """The modules that are imported by now stay: the collector, which many tests call, need not look at them again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def embedded() -> Pair:
    """The embedded pair on the CPU."""
    from specviz.engine.pair import load_pair
    from specviz.models.registry import DEFAULT_PAIR

    return load_pair(DEFAULT_PAIR, device="cpu")
