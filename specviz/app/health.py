"""/healthz and /metrics: the server's health. They contain numbers and names of pairs, but no texts, paths or versions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, Metric, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from specviz import environment
from specviz.serving.service import Service
from specviz.serving.statistics import BOUNDS

_FRESH = {"Cache-Control": "no-store"}

COUNTERS = {
    "refused": ("specviz_texts_refused", "Sequences refused: the queue was full."),
    "tokens": ("specviz_tokens", "Tokens emitted."),
    "examined": ("specviz_proposals_examined", "Draft tokens examined."),
    "drafts": ("specviz_spec_decode_num_drafts", "Rounds of single sequences that examined draft tokens."),
    "draft_tokens": ("specviz_spec_decode_num_draft_tokens", "Draft tokens of these rounds."),
    "accepted": ("specviz_spec_decode_num_accepted_tokens", "Draft tokens accepted."),
    "rounds": ("specviz_rounds", "Rounds of a batch."),
    "busy_seconds": ("specviz_busy_seconds", "Seconds in prefill and rounds."),
    "waited_seconds": ("specviz_waiting_seconds", "Seconds in the queue, summed over sequences."),
}
"""Counters by field of `EngineStatistics`; `spec_decode` ones have vLLM's names. The output appends _total to their names."""
LABELLED = {
    "finished": ("specviz_texts_finished", "Sequences that ended, by reason.", "reason"),
    "accepted_per_position": (
        "specviz_spec_decode_num_accepted_tokens_per_pos",
        "Draft tokens accepted, by position in the draft.",
        "position",
    ),
}
"""Counters with one more label, by field of `EngineStatistics`."""
HISTOGRAMS = {
    "time_to_first_token": ("specviz_time_to_first_token_seconds", "From arrival to the first tokens."),
    "time_per_output_token": (
        "specviz_request_time_per_output_token_seconds",
        "Of each sequence: time after its first tokens, per token after them.",
    ),
}
"""Histograms by field of `EngineStatistics`."""
GAUGES = {
    "running": ("specviz_texts_running", "Sequences in prefill or decoding."),
    "waiting": ("specviz_texts_waiting", "Sequences in the queue."),
    "max_sequences": ("specviz_rows", "Sequences that may decode at once."),
    "loaded": ("specviz_pair_loaded", "Whether the pair is in memory."),
}
"""Gauges by field of `EngineStatistics`."""


def health_routes(service: Service) -> list[BaseRoute]:
    """Further routes of the page's server: /healthz, and /metrics if SPECVIZ_METRICS is 1."""

    def health(request: Request) -> Response:
        """200 while the service can serve requests, otherwise 503."""
        try:
            statistics, healthy = service.status(), service.healthy
        except Exception:
            statistics, healthy = [], False
        pairs = {
            each.pair: {"loaded": each.loaded, "running": each.running, "waiting": each.waiting}
            for each in statistics
        }
        content = {"status": "ok" if healthy else "down", "pairs": pairs}
        return JSONResponse(content, 200 if healthy else 503, _FRESH)

    def metrics(request: Request) -> Response:
        return Response(generate_latest(registry), headers=_FRESH, media_type=CONTENT_TYPE_PLAIN_0_0_4)

    if not environment.METRICS.value():
        return [Route("/healthz", health)]
    registry = CollectorRegistry()
    registry.register(_EngineCollector(service))
    ProcessCollector(registry=registry)  # memory, processor time, open files; on Linux only
    return [Route("/healthz", health), Route("/metrics", metrics)]


class _EngineCollector(Collector):
    """Reads a service's statistics whenever /metrics is scraped."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        """The metrics of all pairs."""
        statistics = self._service.status()
        for field, (name, words, label) in LABELLED.items():
            labelled = CounterMetricFamily(name, words, labels=["pair", label])
            for each in statistics:
                for value, count in sorted(getattr(each, field).items()):
                    labelled.add_metric([each.pair, str(value)], count)
            yield labelled
        for field, (name, words) in HISTOGRAMS.items():
            histogram = HistogramMetricFamily(name, words, labels=["pair"])
            for each in statistics:
                found = getattr(each, field)
                buckets = zip((*map(str, BOUNDS), "+Inf"), accumulate(found.counts), strict=True)
                histogram.add_metric([each.pair], list(buckets), found.total)
            yield histogram
        for metrics, kind in ((COUNTERS, CounterMetricFamily), (GAUGES, GaugeMetricFamily)):
            for field, (name, words) in metrics.items():
                family = kind(name, words, labels=["pair"])
                for each in statistics:
                    family.add_metric([each.pair], getattr(each, field))
                yield family
        memory = GaugeMetricFamily(
            "specviz_accelerator_memory_bytes", "Memory reserved on an accelerator.", labels=["device"]
        )
        for index, reserved in enumerate(_reserved() if statistics else ()):
            memory.add_metric([f"cuda:{index}"], reserved)
        yield memory


def _reserved() -> list[int]:
    """Bytes that torch has reserved on each GPU. Call only after a pair was loaded, since this imports torch."""
    import torch

    if not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return []
    return [torch.cuda.memory_reserved(index) for index in range(torch.cuda.device_count())]
