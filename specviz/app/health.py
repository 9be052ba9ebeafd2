"""/healthz and /metrics: how the server is, for machines. In numbers and names of pairs: no text, no path, no version."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from specviz.serving.service import Service
from specviz.serving.statistics import PairTally

if TYPE_CHECKING:
    from prometheus_client import Metric

_FRESH = {"Cache-Control": "no-store"}

COUNTERS = {
    "refused": ("specviz_texts_refused", "Texts not taken: the queue was full, or a visitor had too many."),
    "tokens": ("specviz_tokens", "Tokens written."),
    "examined": ("specviz_proposals_examined", "Proposals that were examined."),
    "accepted": ("specviz_proposals_accepted", "Proposals that were accepted."),
    "rounds": ("specviz_rounds", "Rounds of a batch."),
    "busy_seconds": ("specviz_busy_seconds", "Seconds spent reading prompts and in rounds."),
    "waited_seconds": ("specviz_waiting_seconds", "Seconds that texts waited for their turn, all together."),
}
"""By the names of a `PairTally`; they grow as long as the server runs, and end in _total where they are read."""
GAUGES = {
    "running": ("specviz_texts_running", "Texts being written now."),
    "waiting": ("specviz_texts_waiting", "Texts that wait for their turn now."),
    "max_rows": ("specviz_rows", "Texts that can be written at once."),
    "loaded": ("specviz_pair_loaded", "Whether the pair is in memory."),
}
"""By the names of a `PairTally`."""


def health_routes(service: Service) -> list[BaseRoute]:
    """The routes to be served beside the page: /healthz, and /metrics where SPECVIZ_METRICS is 1."""

    def health(request: Request) -> Response:
        """200 while the service can write texts, 503 once it was closed or an engine's thread has died."""
        try:
            tallies, healthy = service.status(), service.healthy
        except Exception:  # whatever it is, the answer is no
            tallies, healthy = [], False
        pairs = {
            tally.pair: {"loaded": tally.loaded, "running": tally.running, "waiting": tally.waiting}
            for tally in tallies
        }
        content = {"status": "ok" if healthy else "down", "pairs": pairs}
        return JSONResponse(content, 200 if healthy else 503, _FRESH)

    routes: list[BaseRoute] = [Route("/healthz", health)]
    if os.environ.get("SPECVIZ_METRICS") == "1":
        routes.append(_metrics_route(service))
    return routes


def _metrics_route(service: Service) -> Route:
    from prometheus_client import CollectorRegistry, ProcessCollector
    from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
    from prometheus_client.registry import Collector

    class Tallies(Collector):
        def collect(self) -> Iterator[Metric]:
            yield from _metrics(service.status())

    registry = CollectorRegistry()
    registry.register(Tallies())
    ProcessCollector(registry=registry)  # resident memory, processor time, open files; on Linux only

    def metrics(request: Request) -> Response:
        return Response(generate_latest(registry), headers=_FRESH, media_type=CONTENT_TYPE_PLAIN_0_0_4)

    return Route("/metrics", metrics)


def _metrics(tallies: list[PairTally]) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    finished = CounterMetricFamily(
        "specviz_texts_finished", "Texts that ended, by why.", labels=["pair", "reason"]
    )
    for tally in tallies:
        for reason, count in sorted(dict(tally.finished).items()):
            finished.add_metric([tally.pair, reason], count)
    yield finished
    kinds: Any = ((COUNTERS, CounterMetricFamily), (GAUGES, GaugeMetricFamily))
    for told, kind in kinds:
        for field, (name, words) in told.items():
            family = kind(name, words, labels=["pair"])
            for tally in tallies:
                family.add_metric([tally.pair], getattr(tally, field))
            yield family
    memory = GaugeMetricFamily(
        "specviz_accelerator_memory_bytes", "Memory reserved on an accelerator.", labels=["device"]
    )
    for device, held in _accelerators():
        memory.add_metric([device], held)
    yield memory


def _accelerators() -> Iterator[tuple[str, int]]:
    """Accelerators and the bytes reserved on each, if torch is there already and has any in use."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        for place in range(torch.cuda.device_count()):
            yield f"cuda:{place}", torch.cuda.memory_reserved(place)
