"""An engine and a server on the embedded pair, for all end-to-end tests."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from specviz.app.page import build_page
from specviz.engine.engine import Engine
from specviz.engine.events import Event, Waiting
from specviz.engine.pair import Pair
from specviz.runtime.cpu.fused.runner import FusedModel
from specviz.schema.settings import Request
from specviz.serving.limits import NOBODY, Visitor
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


class Listening(Service):
    """The real service; keeps who asked."""

    visitors: list[Visitor]

    def events(
        self,
        key: str,
        requests: Sequence[Request],
        stop: threading.Event,
        progress: Any = None,
        *,
        visitor: Visitor = NOBODY,
    ) -> Iterator[Event | Waiting]:
        self.visitors.append(visitor)
        return super().events(key, requests, stop, progress, visitor=visitor)

    def ended(self, reason: str) -> int:
        """How many texts have ended for this reason."""
        return sum(tally.finished[reason] for tally in self.status())


@pytest.fixture(scope="package")
def service(embedded: Pair) -> Iterator[Listening]:
    service = Listening()
    service.visitors = []
    with holding(service, embedded):
        yield service


@pytest.fixture(scope="package")
def address(service: Listening) -> Iterator[str]:
    """Where the page is served."""
    page = build_page(service)
    yield start(page, service)
    close(page)
