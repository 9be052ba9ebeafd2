"""For all unit tests: one thread, and what the tests of the GPU path share.

Tiny models gain nothing from threads, and lose much where tests run beside other work.
"""

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
    """A pretended GPU, there for the length of the test, on which passes are captured."""
    from tests.support.pretend_gpu import pretend_gpu

    monkeypatch.setenv("SPECVIZ_GRAPHS", "1")
    with pretend_gpu() as gpu:
        yield gpu
        gc.collect()  # what lies on it goes before it does


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Pairs:
    """Tiny pairs on the CPU by their family, made when first asked for."""

    @cache
    def of(family: str, **options: Any) -> ModelPair:
        return tiny_pair(family, tmp_path_factory.mktemp(family), **options)

    return of
