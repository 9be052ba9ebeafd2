"""/healthz and /metrics: the server's health for machines, in numbers and names of pairs: no text, no path, no version."""

from __future__ import annotations

import os
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Metric, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from specviz.serving.service import Service
from specviz.serving.statistics import EngineStatistics

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
"""By the names of `EngineStatistics`; they grow as long as the server runs, and end in _total in the exposition."""
GAUGES = {
    "running": ("specviz_texts_running", "Texts being written now."),
    "waiting": ("specviz_texts_waiting", "Texts that wait for their turn now."),
    "max_sequences": ("specviz_rows", "Texts that can be written at once."),
    "loaded": ("specviz_pair_loaded", "Whether the pair is in memory."),
}
"""By the names of `EngineStatistics`."""


def health_routes(service: Service) -> list[BaseRoute]:
    """The routes to be served beside the page: /healthz, and /metrics where SPECVIZ_METRICS is 1."""

    def health(request: Request) -> Response:
        """200 while the service can write texts, 503 once it was closed or an engine's thread has died."""
        try:
            statistics, healthy = service.status(), service.healthy
        except Exception:  # for any reason: the answer is no
            statistics, healthy = [], False
        pairs = {
            each.pair: {"loaded": each.loaded, "running": each.running, "waiting": each.waiting}
            for each in statistics
        }
        content = {"status": "ok" if healthy else "down", "pairs": pairs}
        return JSONResponse(content, 200 if healthy else 503, _FRESH)

    routes: list[BaseRoute] = [Route("/healthz", health)]
    if os.environ.get("SPECVIZ_METRICS") == "1":
        routes.append(_metrics_route(service))
    return routes


def _metrics_route(service: Service) -> Route:
    class EngineCollector(Collector):
        def collect(self) -> Iterator[Metric]:
            return _metrics(service.status())

    registry = CollectorRegistry()
    registry.register(EngineCollector())
    ProcessCollector(registry=registry)  # resident memory, processor time, open files; on Linux only

    def metrics(request: Request) -> Response:
        return Response(generate_latest(registry), headers=_FRESH, media_type=CONTENT_TYPE_PLAIN_0_0_4)

    return Route("/metrics", metrics)


def _metrics(statistics: list[EngineStatistics]) -> Iterator[Metric]:
    finished = CounterMetricFamily(
        "specviz_texts_finished", "Texts that ended, by why.", labels=["pair", "reason"]
    )
    for each in statistics:
        for reason, count in sorted(dict(each.finished).items()):
            finished.add_metric([each.pair, reason], count)
    yield finished
    for metrics, kind in ((COUNTERS, CounterMetricFamily), (GAUGES, GaugeMetricFamily)):
        for field, (name, words) in metrics.items():
            family = kind(name, words, labels=["pair"])
            for each in statistics:
                family.add_metric([each.pair], getattr(each, field))
            yield family
    memory = GaugeMetricFamily(
        "specviz_accelerator_memory_bytes", "Memory reserved on an accelerator.", labels=["device"]
    )
    # Before the first pair there is none.
    for index, reserved in enumerate(_reserved() if statistics else ()):
        memory.add_metric([f"cuda:{index}"], reserved)
    yield memory


def _reserved() -> list[int]:
    """Bytes that torch has reserved on each GPU it uses."""
    import torch  # which the page does without, and takes seconds: here a pair has brought it

    if not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return []
    return [torch.cuda.memory_reserved(index) for index in range(torch.cuda.device_count())]
