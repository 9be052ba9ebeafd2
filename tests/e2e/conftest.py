"""An engine on the embedded pair, for all end-to-end tests."""

from collections.abc import Iterator
from typing import Any

import pytest

from specviz.engine.engine import Engine
from specviz.engine.pair import Pair
from tests.support.memory import memory_given_back  # noqa: F401  # a fixture of all tests here


@pytest.fixture(scope="package")
def engine(embedded: Pair) -> Iterator[Engine]:
    """An engine on the default pair, in float32 on the CPU, its passes on two threads whatever was measured."""
    decoders: list[Any] = [
        getattr(model, "decoder", None) for model in (embedded.drafter_model, embedded.verifier_model)
    ]
    measured = [each.threads for each in decoders if each]
    for each in filter(None, decoders):
        each.threads = 2
    yield Engine(embedded)
    for each, threads in zip(filter(None, decoders), measured, strict=True):
        each.threads = threads
