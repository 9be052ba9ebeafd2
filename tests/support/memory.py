"""Give memory that a module's tests have freed back to the system; for conftests of tests that take much."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from specviz.runtime.memory import give_back_memory


@pytest.fixture(autouse=True, scope="module")
def memory_given_back() -> Iterator[None]:
    """At the end of each module, once all else of it is gone."""
    yield
    gc.collect()
    give_back_memory()
