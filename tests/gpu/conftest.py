"""The embedded pair on a GPU, in float32, with captured passes. Without a GPU these tests are skipped and say so."""

import pytest
import torch

from specviz.engine.engine import Engine
from specviz.models.loading import load_pair
from specviz.models.registry import DEFAULT_PAIR


@pytest.fixture(autouse=True)
def captured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECVIZ_GRAPHS", "1")


@pytest.fixture(scope="session")
def engine() -> Engine:
    """An engine on the default pair."""
    return Engine(load_pair(DEFAULT_PAIR, device="cuda", dtype="float32"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests of this folder where there is no GPU."""
    if not torch.cuda.is_available():
        left_out = pytest.mark.skip(reason="there is no CUDA device here")
        for item in items:
            if item.path.parent.name == "gpu":
                item.add_marker(left_out)
