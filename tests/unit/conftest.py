"""For all unit tests: one thread, and tiny pairs.

Tiny models gain nothing from threads, and lose much where tests run beside other work.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.support.tiny import Pairs, tiny_pair

if TYPE_CHECKING:
    from specviz.engine.engine import Engine
    from specviz.models.pair import ModelPair


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Pairs:
    """Tiny pairs on the CPU by family; each is made when it is first asked for."""

    @cache
    def of(family: str, **options: Any) -> ModelPair:
        return tiny_pair(family, tmp_path_factory.mktemp(family), **options)

    return of


@pytest.fixture(scope="module")
def pair(pairs: Pairs) -> ModelPair:
    """A tiny Llama pair in float64, where the laws hold to the last token."""
    return pairs("llama")


@pytest.fixture(scope="module")
def engine(pair: ModelPair) -> Engine:
    """An engine on the module's pair."""
    from specviz.engine.engine import Engine

    return Engine(pair)
