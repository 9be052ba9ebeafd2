"""For all tests, before anything is imported: torch on one thread, since three processes share two cores, and all pairs on offer.

A folder of uploads for each process, since a server that ends empties its own; and the embedded pair, which is loaded once in a process.
"""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import sys
import tempfile
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from specviz.engine.pair import Pair

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads that do not spin, as in specviz/app/server.py
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("SPECVIZ_PAIRS_OFFERED", "all")
if not os.path.exists(
    "/dev/nvidiactl"
):  # without a GPU its kernels are interpreted; Triton reads this when it is imported
    os.environ["TRITON_INTERPRET"] = "1"
os.environ["GRADIO_TEMP_DIR"] = tempfile.mkdtemp(prefix="specviz-uploads-")
atexit.register(shutil.rmtree, os.environ["GRADIO_TEMP_DIR"], ignore_errors=True)


def pytest_collection_finish() -> None:
    """The modules that are imported by now stay: the collector, which many tests call, need not look at them again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def seeded() -> None:
    """What a test draws depends neither on the tests before it nor on the day."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)


@pytest.fixture(scope="session")
def embedded() -> Pair:
    """The embedded pair on the CPU."""
    from specviz.engine.pair import load_pair
    from specviz.models.registry import DEFAULT_PAIR

    return load_pair(DEFAULT_PAIR, device="cpu")
