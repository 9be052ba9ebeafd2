"""For all tests: the environment, set before anything is imported; groups of tests; and the expensive fixtures they share.

torch has one thread, because tests run in several processes. Each process has its own folder of uploads, because a
server that ends empties it.
"""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import sys
import tempfile
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from specviz.engine.pair import Pair
    from tests.support.hub_visitor import Visitor
    from tests.support.stand_in_hub import StandInHub

# Threads sleep while they wait, as in specviz/app/server.py.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("SPECVIZ_PAIRS_OFFERED", "all")
if not os.path.exists("/dev/nvidiactl"):
    os.environ["TRITON_INTERPRET"] = "1"  # without a GPU; Triton reads it when it is imported
os.environ["GRADIO_TEMP_DIR"] = tempfile.mkdtemp(prefix="specviz-uploads-")
atexit.register(shutil.rmtree, os.environ["GRADIO_TEMP_DIR"], ignore_errors=True)


GROUPS = {
    "tests/e2e/test_every_pair.py": "hub",
    "tests/e2e/test_hub_faults.py": "hub",
    "tests/browser/test_compare.py": "runs",
    "tests/browser/test_forks.py": "runs",
    "tests/browser/test_link.py": "runs",
    "tests/browser/test_page.py": "runs",
    "tests/browser/": "page",
    "tests/e2e/": "embedded",
    "tests/hostile/test_faults.py": "faults",
    "tests/hostile/": "hostile",
}
"""Tests that run in one process, by the beginning of their path: a group shares a server, a browser or a loaded pair.

Those in a browser are two groups, because one would take longer than all other tests. Other files are groups of their own.
"""
LONGEST = ("page", "runs", "faults", "hub", "embedded", "hostile")


def group_of(nodeid: str) -> str:
    """The group of a test, by its node id."""
    file = nodeid.partition("::")[0]
    return next((name for start, name in GROUPS.items() if file.startswith(start)), file)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the long groups before the others."""
    ranks = {name: rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(group_of(item.nodeid), len(ranks)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With several processes, send each group to one of them."""
    from xdist.scheduler import LoadScopeScheduling

    class GroupScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return GroupScheduling(config, log)


def pytest_collection_finish() -> None:
    """Exempt what is imported by now from garbage collection, which many tests ask for."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def seeded() -> None:
    """A test draws the same numbers whatever ran before it."""
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


@pytest.fixture(scope="session")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandInHub]:
    """A stand-in for the model hub; it makes a repository when one is first asked for."""
    from tests.support.stand_in_hub import StandInHub

    with StandInHub(tmp_path_factory.mktemp("hub")) as hub:
        yield hub


@pytest.fixture(scope="session")
def visitor(hub: StandInHub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitor]:
    """A visitor of a server on the stand-in hub, with an empty cache, that holds one pair at a time."""
    from tests.support.hub_visitor import FIRST, Visitor
    from tests.support.stand_in_hub.served import served

    home = tmp_path_factory.mktemp("home")
    more = {
        "SPECVIZ_PAIRS": "1",
        "SPECVIZ_PAIRS_OFFERED": f"{FIRST},opt,qwen2.5,gemma2",
    }
    with served(hub, home, **more) as address:
        found = Visitor(hub, home, address)
        found.write(FIRST, 1)  # the first pair is being loaded: no other can be meanwhile
        yield found
