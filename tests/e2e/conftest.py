"""An engine and a server on the embedded pair, for all end-to-end tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from specviz.app.page import build_page
from specviz.engine.engine import Engine
from specviz.engine.pair import Pair
from specviz.runtime.cpu.fused.runner import FusedModel
from specviz.serving.service import Service
from tests.support.memory import memory_given_back  # noqa: F401  # a fixture of all tests here
from tests.support.serving import close, holding, start


@pytest.fixture(scope="package")
def engine(embedded: Pair) -> Iterator[Engine]:
    """An engine on the default pair, in float32 on the CPU; passes use two threads whatever was measured."""
    models = (embedded.drafter_model, embedded.verifier_model)
    with pytest.MonkeyPatch.context() as patch:
        for model in models:
            if isinstance(model, FusedModel):
                patch.setattr(model.decoder, "threads", 2)
        yield Engine(embedded)


@pytest.fixture(scope="package")
def service(embedded: Pair) -> Iterator[Service]:
    service = Service()
    with holding(service, embedded):
        yield service


@pytest.fixture(scope="package")
def address(service: Service) -> Iterator[str]:
    """Where the page is served."""
    page = build_page(service)
    yield start(page, service)
    close(page)
