"""For all unit tests: torch on one thread, which is fastest for tiny models; a pretended GPU; tiny pairs."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.support.tiny import Pairs, tiny_pair

if TYPE_CHECKING:
    from specviz.models.pair import ModelPair
    from tests.support.pretend_gpu import PretendGpu


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[PretendGpu]:
    """A pretended GPU for the length of the test; passes on it are captured."""
    from tests.support.pretend_gpu import pretend_gpu

    monkeypatch.setenv("SPECVIZ_GRAPHS", "1")
    with pretend_gpu() as gpu:
        yield gpu
        gc.collect()  # tensors on the GPU must be freed before it is gone


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Pairs:
    """Tiny pairs on the CPU by family; each is made when it is first asked for."""

    @cache
    def of(family: str, **options: Any) -> ModelPair:
        return tiny_pair(family, tmp_path_factory.mktemp(family), **options)

    return of
